"""Parses the pages of the two maps in an inventory of Breezy's format 2a, strictly.

`id_to_entry` maps a file id to its entry. `by_name` (Breezy's `parent_id_basename_to_file_id`) maps a folder's id and a
name, joined with NUL, to a file id. A page is a leaf, which has items, or an internal node ("a page of pages"), which
has the keys of other pages. Its header has the number of parts of a key, 1 or 2, which distinguishes the maps. Every
function takes time in proportion to the bytes, and raises nothing but `ValueError`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from smartserver.records.model import Key, RevisionId, made
from smartserver.vcs.patterns import compile_pattern

ENTRY_PARTS: Final = 1
NAME_PARTS: Final = 2
"""The number of parts of a key in `id_to_entry` and in `by_name`."""

MAX_PAGE: Final = 4 << 20
"""The most bytes of a page that is read, since small items take fourteen times as many in memory. Breezy splits a page
of more than 64 KiB, so that only one very long item makes a longer one."""

SHARED_BYTES: Final = 1 << 26
"""The most bytes that the common prefix may have in all keys of a leaf together. Breezy splits a page of more than 64
KiB; other programs may not."""


class InternalNode(NamedTuple):
    """A page of pages. `children`: the keys of its pages, by the byte that follows `prefix` in their search keys."""

    parts: int
    prefix: bytes
    children: Mapping[bytes, Key]


class Leaf(NamedTuple):
    """A page of items; the parts of a key are joined with NUL."""

    parts: int
    items: Mapping[bytes, bytes]


class InventoryEntry(NamedTuple):
    """A file, folder or symbolic link in an inventory."""

    kind: str
    """`file`, `dir`, `symlink`, or `tree` for a reference to another tree."""
    file_id: bytes
    parent_id: bytes
    """The id of the folder; empty for the root."""
    name: bytes
    revision: RevisionId
    """The revision that changed the entry last."""
    sha1: bytes = b""
    """The sha1 of a file's text, in hex."""
    size: int = 0
    executable: bool = False
    target: bytes = b""
    """The target of a symbolic link, or the revision of a referenced tree."""

    @property
    def text_key(self) -> Key:
        """The key of the entry's text: the file id and the revision, joined with NUL."""
        return self.file_id + b"\0" + self.revision


CHILD_BYTES: Final = 48
"""The number of bytes of each line in a page of pages."""

MAX_CHILDREN: Final = 255
"""The most lines of a page of pages: one for each byte but the newline."""

_KEY_BEGIN: Final = b"sha1:"
_HEX: Final = b"0123456789abcdef"
_BYTES: Final = [bytes((value,)) for value in range(256)]
_NODE_HEAD: Final = compile_pattern(rb"chknode:\n[0-9]{1,10}\n([12])\n[0-9]{1,10}\n([^\n]{0,8})\n")

_LEAF: Final = compile_pattern(rb"chkleaf:\n[0-9]{1,10}\n([12])\n([0-9]{1,10})\n([^\n]*+)\n")

# `.` matches faster than a class of bytes. So these patterns let NULs pass, which are counted.
_COMMON: Final = rb".++\n.*+\n.*+\n.++\n"
_ENTRIES: Final = compile_pattern(
    rb"(?:[^\0\n]*+\0(?:"
    rb"7\nfile: " + _COMMON + rb"[0-9a-f]{40}\n[0-9]{1,19}\n[YN]\n"
    rb"|4\ndir: " + _COMMON + rb"|5\n(?:symlink|tree): " + _COMMON + rb".*+\n"
    rb"))*+"
)
"""Matches all items of a leaf of `id_to_entry`. Only the first line of an item has a NUL."""
_TEXTS: Final = compile_pattern(
    rb"([^\0]*+)\0(?:7\n(f)ile|4\ndir|5\n(s)ymlink|5\n(t)ree): (.++)\n.*+\n.*+\n(.++)\n"
    rb"(?(2)(.++)\n.++\n.\n)(?(3).*+\n)(?(4).*+\n)"
)
"""Matches an item of a leaf of `id_to_entry`. The groups are the rest of its key after the common prefix, its kind (one
of three groups), its file id, its revision, and the SHA-1 of a file."""
_NAMES: Final = (
    compile_pattern(rb"(?:[^\0\n]*+\0[^\0\n]*+\0001\n.++\n)*+"),
    compile_pattern(rb"(?:[^\0\n]*+\0001\n.++\n)*+"),
)
"""Each matches all items of a leaf of `by_name`. The index is the number of NULs in the common prefix of its keys."""
_VALUES: Final = compile_pattern(rb"([^\0]*+)\0(?:7\n(f(?:.*+\n){7})|4\n(d(?:.*+\n){4})|5\n([st](?:.*+\n){5}))")
_FILE_IDS: Final = compile_pattern(rb"([^\n]*)\0001\n(.++)\n")
"""`_VALUES` matches an item of a leaf of `id_to_entry`, `_FILE_IDS` one of `by_name`. The groups are the rest of its
key after the common prefix, and its value."""


def read_node(text: bytes) -> InternalNode:
    """Parse a page of pages."""
    _check_size(text)
    head = node_head(text)
    if head is None or not head.end < len(text) <= head.end + MAX_CHILDREN * CHILD_BYTES:
        raise ValueError("cannot be read as a page of pages")
    lines = text[head.end :]
    pages = node_pages(lines)
    children = dict(zip(map(_BYTES.__getitem__, lines[::CHILD_BYTES]), pages, strict=True))
    if len(children) != len(pages):
        raise ValueError("cannot be read as a page of pages: two are at the same place")
    return InternalNode(int(head.parts), head.prefix, children)


class NodeHead(NamedTuple):
    """The head of a page of pages, and the offset of its pages."""

    parts: bytes
    prefix: bytes
    end: int


def node_head(text: bytes) -> NodeHead | None:
    """Parse the head of a page of pages, but not the pages. Return None if the text does not begin with such a head."""
    found = _NODE_HEAD.match(text)
    return None if found is None else NodeHead(found[1], found[2], found.end())


def node_pages(lines: bytes) -> list[Key]:
    """Return the keys in whole lines of a page of pages."""
    pages = [lines[at : at + CHILD_BYTES - 3] for at in range(2, len(lines), CHILD_BYTES)]
    # In `sha1:`, the s, the h and the colon are no digits.
    digits = len(_KEY_BEGIN) - 2
    if (
        len(lines) != len(pages) * CHILD_BYTES
        or b"\n" in lines[::CHILD_BYTES]
        or lines[1::CHILD_BYTES].strip(b"\0")
        or lines[CHILD_BYTES - 1 :: CHILD_BYTES].strip(b"\n")
        or {page[: len(_KEY_BEGIN)] for page in pages} - {_KEY_BEGIN}
        or len(b"".join(pages).translate(None, _HEX)) != digits * len(pages)
    ):
        raise ValueError("cannot be read as a page of pages")
    return pages


def is_node(text: bytes) -> bool:
    """Tell whether a page is a page of pages, and not a leaf."""
    return text.startswith(b"chknode:\n")


def leaf_texts(text: bytes) -> dict[Key, bytes]:
    """Return the keys of the texts that a leaf names, and the SHA-1 of each file; a leaf of `by_name` names none."""
    head = _open_leaf(text)
    if head.parts == NAME_PARTS:
        return {}
    texts = item_texts(head, text, head.end, len(text))
    _check_count(head.items, len(texts))
    return texts


def read_leaf(text: bytes) -> Leaf:
    """Parse a page of items."""
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
    """The head of a leaf: the number of parts of a key, the number of its items, and the common prefix of its keys."""

    parts: int
    items: int
    prefix: bytes
    end: int
    """The offset of the items."""


def leaf_head(text: bytes) -> LeafHead:
    """Parse the head of a leaf, but not its items."""
    _check_size(text)
    found = _LEAF.match(text)
    if found is None:
        raise ValueError("cannot be read as a leaf")
    parts, count, prefix = int(found[1]), int(found[2]), found[3]
    if prefix.count(b"\0") >= parts or count * len(prefix) > SHARED_BYTES:
        raise ValueError(f"cannot be read as a leaf: its keys begin with {prefix[:80]!r}")
    return made(LeafHead, (parts, count, prefix, found.end()))


def count_items(head: LeafHead, text: bytes, start: int, end: int) -> int:
    """Return the number of a leaf's items between `start` and `end`. The form of each is checked."""
    cuts = head.prefix.count(b"\0")
    items = _ENTRIES if head.parts == ENTRY_PARTS else _NAMES[cuts]
    count, rest = divmod(text.count(b"\0", start, end), head.parts - cuts)
    if rest or items.fullmatch(text, start, end) is None:
        raise ValueError("cannot be read as a leaf: its items")
    if head.parts == NAME_PARTS:
        _check_count(2 * count, text.count(b"\n", start, end))
    return count


def item_texts(head: LeafHead, text: bytes, start: int, end: int) -> dict[Key, bytes]:
    """Return the keys of the texts that items of a leaf of `id_to_entry` name, and the SHA-1 of each file.

    `count_items` has checked these items.
    """
    prefix = head.prefix
    texts = _TEXTS.findall(text, start, end)
    if [prefix + item[0] for item in texts] != [item[4] for item in texts]:
        raise ValueError("cannot be read as a leaf: a key is not its entry's id")
    _check_count(len(texts), len({item[4] for item in texts}))
    return {item[4] + b"\0" + item[5]: item[6] for item in texts}


def _open_leaf(text: bytes) -> LeafHead:
    """Parse the head of a leaf, and check the form and number of its items."""
    head = leaf_head(text)
    _check_count(head.items, count_items(head, text, head.end, len(text)))
    return head


def _check_size(page: bytes) -> None:
    if len(page) > MAX_PAGE:
        raise ValueError(f"cannot be read as a page: {len(page)} bytes, expected no more than {MAX_PAGE}")


def _check_count(said: int, found: int) -> None:
    if said != found:
        raise ValueError(f"cannot be read as a leaf: it says {said} and has {found}")


_ENTRY: Final = compile_pattern(
    rb"(?:(file)|dir|(symlink|tree)): ([^\0\n]++)\n([^\0\n]*+)\n([^\0\n]*+)\n([^\0\n]++)"
    rb"(?(1)\n([0-9a-f]{40})\n([0-9]{1,19})\n([YN]))(?(2)\n([^\0\n]*+))"
)


def read_entry(value: bytes) -> InventoryEntry:
    """Parse an entry, which is a value of `id_to_entry`."""
    found = _ENTRY.fullmatch(value)
    if found is None:
        raise ValueError(f"{value[:80]!r} cannot be read as an entry")
    file, other, file_id, parent_id, name, revision, sha1, size, executable, target = found.groups()
    if file is not None:
        return InventoryEntry("file", file_id, parent_id, name, revision, sha1, int(size), executable == b"Y")
    kind = "dir" if other is None else other.decode()
    return InventoryEntry(kind, file_id, parent_id, name, revision, target=target or b"")


def search_key(*parts: bytes) -> bytes:
    """Return the key by which a map finds an item: the CRC-32 of each part, joined with NUL. A newline becomes `_`."""
    return b"\0".join([zlib.crc32(part).to_bytes(4, "big") for part in parts]).replace(b"\n", b"_")
