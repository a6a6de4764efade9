"""The texts of Breezy's format 2a, read strictly: a revision, an inventory and the pages of its two maps.

An inventory names the root pages of two maps. `id_to_entry` has a file's id as key and its entry as value;
`by_name` (Breezy's `parent_id_basename_to_file_id`) has the folder's id and the name as key, joined with NUL, and the
file's id as value. A page is a leaf of items or a node of pages, and says how many parts its keys have, which tells the
maps apart. Whatever the bytes, a reader here takes a time in proportion to them and raises nothing but `ValueError`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from smartserver.records.limits import MAX_PARENTS
from smartserver.records.model import Key, RevisionId

FORMAT: Final = 10
"""Of revisions in 2a."""

SEARCH_KEY: Final = b"hash-255-way"
"""How 2a finds a key in a map: see `search_key`."""

ENTRY_PARTS: Final = 1
NAME_PARTS: Final = 2
"""Parts of a key in `id_to_entry` and in `by_name`."""

MAX_PAGE: Final = 4 << 20
"""Bytes of a page that is read: one of small items becomes fourteen times as many. Breezy splits a page of more than 64
KiB, so that only one very long item makes a longer one."""

MAX_PROPERTIES: Final = 65_536
"""Of a revision: as many as it may have parents."""

SHARED_BYTES: Final = 1 << 26
"""Bytes that what a leaf's keys begin with may take in all of them. Breezy splits a page of more than 64 KiB; who made
this one may not have."""


class Revision(NamedTuple):
    """What a revision's text says of it; parents in order, ghosts among them."""

    id: RevisionId
    parents: tuple[RevisionId, ...]


class Inventory(NamedTuple):
    """What an inventory's text says: the root pages of its maps."""

    revision: RevisionId
    root_id: bytes
    id_to_entry: Key
    by_name: Key


class Node(NamedTuple):
    """A page of pages; `children`: by the byte that follows `prefix` in the search keys below."""

    parts: int
    prefix: bytes
    children: Mapping[bytes, Key]


class Leaf(NamedTuple):
    """A page of items; the parts of a key are joined with NUL."""

    parts: int
    items: Mapping[bytes, bytes]


class Entry(NamedTuple):
    """A file, folder or symbolic link in an inventory."""

    kind: str
    """`file`, `dir`, `symlink` or `tree`, a tree that lies elsewhere."""
    file_id: bytes
    parent_id: bytes
    """The folder's; empty for the root."""
    name: bytes
    revision: RevisionId
    """The one that changed it last: file id and this, joined with NUL, are the key of its text."""
    sha1: bytes = b""
    """Of a file's text, in hex."""
    size: int = 0
    executable: bool = False
    target: bytes = b""
    """Where a symbolic link points; the revision of a tree that lies elsewhere."""

    @property
    def text_key(self) -> Key:
        """The key of its text."""
        return self.file_id + b"\0" + self.revision


# Revisions: a list of pairs in bencode


def read_revision(text: bytes) -> Revision:
    """What a revision's text says.

    Raises:
        ValueError: it cannot be read.
    """
    quick = _read_usual(text)
    if quick is not None:
        return quick
    fields: dict[bytes, object] = {}
    at = 1
    if text[:1] != b"l":
        raise ValueError("cannot be read as a revision: it is no list")
    while text[at : at + 1] != b"e":
        pair = text[at : at + 1]
        if pair != b"l":
            raise ValueError(f"cannot be read as a revision: no pair at byte {at}")
        name, at = _string(text, at + 1)
        read = _FIELDS.get(name)
        if read is None or name in fields:
            raise ValueError(f"cannot be read as a revision: it has {name[:40]!r} twice, or is not to have it")
        fields[name], at = read(text, at)
        if text[at : at + 1] != b"e":
            raise ValueError(f"cannot be read as a revision: no end of a pair at byte {at}")
        at += 1
    if at + 1 != len(text):
        raise ValueError(f"cannot be read as a revision: it ends at byte {at + 1} of {len(text)}")
    lacking = _FIELDS.keys() - fields.keys() - {b"timezone"}
    if lacking:
        raise ValueError(f"cannot be read as a revision: it has no {min(lacking).decode()}")
    if fields[b"format"] != FORMAT:
        raise ValueError(f"cannot be read as a revision: format {fields[b'format']}, expected {FORMAT}")
    revision, parents = fields[b"revision-id"], fields[b"parent-ids"]
    assert isinstance(revision, bytes)
    assert isinstance(parents, tuple)
    return Revision(revision, parents)


def _read_usual(text: bytes) -> Revision | None:
    """A revision as Breezy writes it, fields in their usual order; None: only the reader above can say what it is."""
    at = 0
    values: list[bytes] = []
    for number, ahead in enumerate(_USUAL):
        found = ahead.match(text, at)
        if found is None:
            return None
        at = found.end()
        if number == _PROPERTIES:
            try:
                _, at = _properties(text, at - 1)
            except ValueError:
                return None
        elif number == _PARENTS:
            try:
                parents, at = _strings(text, at - 1)
            except ValueError:
                return None
        else:
            end = at + int(found[1])
            values.append(text[at:end])
            at = end
    # A string that is cut off leaves no room for the end.
    return Revision(values[2], parents) if text[at:] == b"ee" else None


_COUNT: Final = rb"(0|[1-9][0-9]{0,9}):"
_LENGTH: Final = re.compile(_COUNT)
_INTEGER: Final = re.compile(rb"i(0|-?[1-9][0-9]{0,18})e")


_USUAL: Final = tuple(
    map(
        re.compile,
        (
            b"ll6:formati%dee" % FORMAT + rb"l9:committer" + _COUNT,
            rb"e(?:l8:timezonei(?:0|-?[1-9][0-9]{0,18})ee)?l10:propertiesd",
            rb"el9:timestamp" + _COUNT,
            rb"el11:revision-id" + _COUNT,
            rb"el10:parent-idsl",
            rb"el14:inventory-sha1" + _COUNT,
            rb"el7:message" + _COUNT,
        ),
    )
)
"""What lies between the values of a revision that Breezy wrote."""
_PROPERTIES: Final = 1
_PARENTS: Final = 4


def _string(text: bytes, at: int) -> tuple[bytes, int]:
    length = _LENGTH.match(text, at)
    if length is None:
        raise ValueError(f"cannot be read as a revision: no string at byte {at}")
    start = length.end()
    end = start + int(length[1])
    if end > len(text):
        raise ValueError(f"cannot be read as a revision: a string at byte {at} is cut off")
    return text[start:end], end


def _integer(text: bytes, at: int) -> tuple[int, int]:
    found = _INTEGER.match(text, at)
    if found is None:
        raise ValueError(f"cannot be read as a revision: no number at byte {at}")
    return int(found[1]), found.end()


def _strings(text: bytes, at: int) -> tuple[tuple[bytes, ...], int]:
    if text[at : at + 1] != b"l":
        raise ValueError(f"cannot be read as a revision: no list at byte {at}")
    found = []
    at += 1
    while text[at : at + 1] != b"e":
        each, at = _string(text, at)
        found.append(each)
        if len(found) > MAX_PARENTS:
            raise ValueError(f"cannot be read as a revision: more than {MAX_PARENTS} parents")
    return tuple(found), at + 1


def _properties(text: bytes, at: int) -> tuple[None, int]:
    """Passes over them: only their form is looked at."""
    if text[at : at + 1] != b"d":
        raise ValueError(f"cannot be read as a revision: no table at byte {at}")
    count = 0
    at += 1
    last: bytes | None = None
    while text[at : at + 1] != b"e":
        name, at = _string(text, at)
        if last is not None and name <= last:
            raise ValueError(f"cannot be read as a revision: the properties are out of order at byte {at}")
        _, at = _string(text, at)
        last = name
        count += 1
        if count > MAX_PROPERTIES:
            raise ValueError(f"cannot be read as a revision: more than {MAX_PROPERTIES} properties")
    return None, at + 1


_FIELDS: Final[dict[bytes, Callable[[bytes, int], tuple[object, int]]]] = {
    b"format": _integer,
    b"committer": _string,
    b"timezone": _integer,
    b"properties": _properties,
    b"timestamp": _string,
    b"revision-id": _string,
    b"parent-ids": _strings,
    b"inventory-sha1": _string,
    b"message": _string,
}


# Inventories

_PAGE_KEY: Final = re.compile(rb"sha1:[0-9a-f]{40}")
_INVENTORY: Final = frozenset(
    (b"search_key_name", b"root_id", b"parent_id_basename_to_file_id", b"revision_id", b"id_to_entry")
)


def read_inventory(text: bytes) -> Inventory:
    """What an inventory's text says.

    Raises:
        ValueError: it cannot be read, or is not of the format 2a.
    """
    first, *lines = text.split(b"\n", len(_INVENTORY) + 1)
    if first != b"chkinventory:" or len(lines) != len(_INVENTORY) + 1 or lines.pop():
        raise ValueError("cannot be read as an inventory: not six lines, the first `chkinventory:`")
    fields: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b": ")
        if not colon or name in fields:
            raise ValueError(f"cannot be read as an inventory: the line {line[:80]!r}")
        fields[name] = value
    if fields.keys() != _INVENTORY:
        raise ValueError(f"cannot be read as an inventory: it has no {min(_INVENTORY - fields.keys()).decode()}")
    if fields[b"search_key_name"] != SEARCH_KEY:
        raise ValueError(f"search keys are {fields[b'search_key_name'][:40]!r}, expected {SEARCH_KEY!r}")
    roots = fields[b"id_to_entry"], fields[b"parent_id_basename_to_file_id"]
    for root in roots:
        if _PAGE_KEY.fullmatch(root) is None:
            raise ValueError(f"cannot be read as an inventory: {root[:80]!r} is no key of a page")
    return Inventory(fields[b"revision_id"], fields[b"root_id"], *roots)


# Pages

CHILD_BYTES: Final = 48
"""Bytes of a line of a page of pages."""

MAX_CHILDREN: Final = 255
"""Lines of a page of pages: one for each byte but the newline."""

_NODE: Final = re.compile(
    rb"chknode:\n[0-9]{1,10}\n([12])\n[0-9]{1,10}\n([^\n]{0,8})\n((?:[^\n]\0sha1:[0-9a-f]{40}\n){1,%d}+)" % MAX_CHILDREN
)
_CHILD: Final = re.compile(rb"(.)\0(sha1:.{40})\n", re.DOTALL)
_NODE_HEAD: Final = re.compile(rb"chknode:\n[0-9]{1,10}\n([12])\n[0-9]{1,10}\n([^\n]{0,8})\n")
_PAGES: Final = re.compile(rb"[^\n]\0(sha1:[0-9a-f]{40})\n")

_LEAF: Final = re.compile(rb"chkleaf:\n[0-9]{1,10}\n([12])\n([0-9]{1,10})\n([^\n]*+)\n")

# A class of bytes is slow to match, `.` is not. So these let NULs pass, which are counted.
_COMMON: Final = rb".++\n.*+\n.*+\n.++\n"
_ENTRIES: Final = re.compile(
    rb"(?:[^\0\n]*+\0(?:"
    rb"7\nfile: " + _COMMON + rb"[0-9a-f]{40}\n[0-9]{1,19}\n[YN]\n"
    rb"|4\ndir: " + _COMMON + rb"|5\n(?:symlink|tree): " + _COMMON + rb".*+\n"
    rb"))*+"
)
"""All items of a leaf of `id_to_entry`. Only the first line of an item has a NUL."""
_TEXTS: Final = re.compile(
    rb"([^\0]*+)\0(?:7\n(f)ile|4\ndir|5\n(s)ymlink|5\n(t)ree): (.++)\n.*+\n.*+\n(.++)\n"
    rb"(?(2).++\n.++\n.\n)(?(3).*+\n)(?(4).*+\n)"
)
"""Of each item of such a leaf the rest of its key, what it is, file id and revision."""
_NAMES: Final = (
    re.compile(rb"(?:[^\0\n]*+\0[^\0\n]*+\0001\n.++\n)*+"),
    re.compile(rb"(?:[^\0\n]*+\0001\n.++\n)*+"),
)
"""All items of a leaf of `by_name`, where what all keys begin with has as many NULs as the index here."""
_VALUES: Final = re.compile(rb"([^\0]*+)\0(?:7\n(f(?:.*+\n){7})|4\n(d(?:.*+\n){4})|5\n([st](?:.*+\n){5}))")
_FILE_IDS: Final = re.compile(rb"([^\n]*)\0001\n(.++)\n")
"""Of each item of a leaf of either map the rest of its key, and its value."""


def read_node(text: bytes) -> Node:
    """A page of pages.

    Raises:
        ValueError: it cannot be read.
    """
    _check_size(text)
    found = _NODE.fullmatch(text)
    if found is None:
        raise ValueError("cannot be read as a page of pages")
    children = dict(_CHILD.findall(found[3]))
    if len(children) * CHILD_BYTES != len(found[3]):
        raise ValueError("cannot be read as a page of pages: two are at the same place")
    return Node(int(found[1]), found[2], children)


class NodeHead(NamedTuple):
    """What a page of pages says before its pages, and where those begin."""

    parts: bytes
    prefix: bytes
    end: int


def node_head(text: bytes) -> NodeHead | None:
    """The head of a page of pages, which are not looked at; None where it is none."""
    found = _NODE_HEAD.match(text)
    return None if found is None else NodeHead(found[1], found[2], found.end())


def node_pages(lines: bytes) -> list[Key]:
    """The keys in some whole lines of a page of pages.

    Raises:
        ValueError: they cannot be read.
    """
    found: list[Key] = _PAGES.findall(lines)
    if len(found) * CHILD_BYTES != len(lines):
        raise ValueError("cannot be read as a page of pages")
    return found


def is_node(text: bytes) -> bool:
    """Whether a page's text is to be read as a page of pages, and not as a leaf."""
    return text.startswith(b"chknode:\n")


def leaf_texts(text: bytes) -> list[Key]:
    """The keys of the texts that a leaf names; a leaf of `by_name` names none.

    Raises:
        ValueError: it cannot be read.
    """
    head = _open_leaf(text)
    if head.parts == NAME_PARTS:
        return []
    texts = item_texts(head, text, head.end, len(text))
    _check_count(head.items, len(texts))
    return texts


def read_leaf(text: bytes) -> Leaf:
    """A page of items.

    Raises:
        ValueError: it cannot be read.
    """
    parts, count, prefix, at = _open_leaf(text)
    if parts == NAME_PARTS:
        rows = _FILE_IDS.findall(text, at)
    else:
        rows = [(rest, (file or folder or other)[:-1]) for rest, file, folder, other in _VALUES.findall(text, at)]
    _check_count(count, len(rows))
    items = {prefix + rest: value for rest, value in rows}
    _check_count(count, len(items))
    return Leaf(parts, items)


class LeafHead(NamedTuple):
    """What a leaf says before its items: parts of their keys, how many there are, what all keys begin with."""

    parts: int
    items: int
    prefix: bytes
    end: int
    """Where the items begin."""


def leaf_head(text: bytes) -> LeafHead:
    """The head of a leaf, whose items are not looked at.

    Raises:
        ValueError: it cannot be read.
    """
    _check_size(text)
    found = _LEAF.match(text)
    if found is None:
        raise ValueError("cannot be read as a leaf")
    parts, count, prefix = int(found[1]), int(found[2]), found[3]
    if prefix.count(b"\0") >= parts or count * len(prefix) > SHARED_BYTES:
        raise ValueError(f"cannot be read as a leaf: its keys begin with {prefix[:80]!r}")
    return LeafHead(parts, count, prefix, found.end())


def count_items(head: LeafHead, text: bytes, start: int, end: int) -> int:
    """How many items of a leaf lie there; of each its form is checked.

    Raises:
        ValueError: it is not the form of items.
    """
    cuts = head.prefix.count(b"\0")
    items = _ENTRIES if head.parts == ENTRY_PARTS else _NAMES[cuts]
    count, rest = divmod(text.count(b"\0", start, end), head.parts - cuts)
    if rest or items.fullmatch(text, start, end) is None:
        raise ValueError("cannot be read as a leaf: its items")
    if head.parts == NAME_PARTS:
        _check_count(2 * count, text.count(b"\n", start, end))
    return count


def item_texts(head: LeafHead, text: bytes, start: int, end: int) -> list[Key]:
    """The keys of the texts that those items of a leaf of `id_to_entry` name; `count_items` has passed them.

    Raises:
        ValueError: an item's key is not its entry's id, or is another's too.
    """
    prefix = head.prefix
    texts = _TEXTS.findall(text, start, end)
    if [prefix + rest for rest, *_ in texts] != [file_id for *_, file_id, _ in texts]:
        raise ValueError("cannot be read as a leaf: a key is not its entry's id")
    keys = dict([item[4:] for item in texts])
    _check_count(len(texts), len(keys))
    return [file_id + b"\0" + revision for file_id, revision in keys.items()]


def read_before(head: LeafHead, text: bytes, start: int, end: int) -> tuple[int, list[Key]]:
    """The number of those items of a leaf that was read before, and the keys of the texts they name."""
    if head.parts == NAME_PARTS:
        return text.count(b"\0", start, end) // (head.parts - head.prefix.count(b"\0")), []
    keys = [item[4] + b"\0" + item[5] for item in _TEXTS.findall(text, start, end)]
    return len(keys), keys


def _open_leaf(text: bytes) -> LeafHead:
    """The head of a leaf whose items have their form and number."""
    head = leaf_head(text)
    _check_count(head.items, count_items(head, text, head.end, len(text)))
    return head


def _check_size(page: bytes) -> None:
    if len(page) > MAX_PAGE:
        raise ValueError(f"cannot be read as a page: {len(page)} bytes, expected no more than {MAX_PAGE}")


def _check_count(said: int, found: int) -> None:
    if said != found:
        raise ValueError(f"cannot be read as a leaf: it says {said} and has {found}")


_ENTRY: Final = re.compile(
    rb"(?:(file)|dir|(symlink|tree)): ([^\0\n]++)\n([^\0\n]*+)\n([^\0\n]*+)\n([^\0\n]++)"
    rb"(?(1)\n([0-9a-f]{40})\n([0-9]{1,19})\n([YN]))(?(2)\n([^\0\n]*+))"
)


def read_entry(value: bytes) -> Entry:
    """The entry that is a value of `id_to_entry`.

    Raises:
        ValueError: it cannot be read.
    """
    found = _ENTRY.fullmatch(value)
    if found is None:
        raise ValueError(f"{value[:80]!r} cannot be read as an entry")
    file, other, file_id, parent_id, name, revision, sha1, size, executable, target = found.groups()
    if file is not None:
        return Entry("file", file_id, parent_id, name, revision, sha1, int(size), executable == b"Y")
    kind = "dir" if other is None else other.decode()
    return Entry(kind, file_id, parent_id, name, revision, target=target or b"")


def search_key(*parts: bytes) -> bytes:
    """By what a key is found in a map: the CRC-32 of each part, joined with NUL, and `_` in the place of newlines."""
    return b"\0".join([zlib.crc32(part).to_bytes(4, "big") for part in parts]).replace(b"\n", b"_")
