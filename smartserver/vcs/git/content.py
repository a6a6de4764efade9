"""`GitContents` reads trees and commits from the store, for `smartserver export`, `ls`, `cat` and `log`.

A name is a full or short ref, looked up in git's order, or a full id or unique prefix of an id in hex. A tag denotes
its target. Expressions such as `main~2` are not names here.
"""

from __future__ import annotations

import codecs
import encodings.aliases
import functools
import pkgutil
import re
from collections.abc import Iterator
from typing import Final

from smartserver.errors import MissingRevision, NoSuchPart, shown
from smartserver.records.browse import ChangedPath, Header, Node, NodeType, message_of
from smartserver.records.cache import Cache
from smartserver.records.content import RepositoryView, Text, whole
from smartserver.records.model import Key, Record, RevisionId
from smartserver.vcs.git.format import (
    BLOB,
    COMMIT,
    FOLDER,
    LINK,
    TAG,
    TREE,
    ChangedEntry,
    ObjectFormat,
    TreeEntry,
    canonical_mode,
    entry_type,
)
from smartserver.vcs.git.names import HEAD, SHORT_FOR

OBJECT: Final = 0
"""The kind of all records."""

RECENT: Final = 1 << 20
"""The most bytes of trees and commits that one request caches itself, because the store's cache is slower."""

OF_RECORD: Final = 500
"""Bytes of memory that a cached record takes in addition to its text."""

LONGEST_NAME: Final = 64
"""The most bytes of an encoding's name; a longer name is cut."""

SLOW: Final = ("idna", "punycode")
"""Encodings of Python that no message uses. The time that they take grows with the square of the text."""

_HEX: Final = re.compile("[0-9a-f]{4,64}")
_PERSON: Final = re.compile(rb"\A(.*?) (-?\d{1,15}) ([+-])(\d\d)(\d\d)\Z", re.DOTALL)

_TYPES: Final = {FOLDER: NodeType.FOLDER, 0o100644: NodeType.FILE, 0o100755: NodeType.EXECUTABLE, LINK: NodeType.LINK}


class GitContents:
    """The `Contents` of a git repository."""

    def __init__(self, stored: RepositoryView, form: ObjectFormat) -> None:
        self._stored = stored
        self._format = form
        self._recent = Cache[Key, Record](RECENT, lambda record: len(record.text) + OF_RECORD)
        """Recently read objects except blobs. A commit's objects are read again to compare its child with it."""

    def find(self, name: str) -> RevisionId:
        """Return the revision that a name denotes; an empty name denotes HEAD. A tag is returned unpeeled."""
        refs = self._stored.refs()
        head = self._stored.setting(HEAD) or b""
        raw = head if name in ("", "HEAD", "@") else name.encode()
        for prefix in SHORT_FOR:
            value = refs.get(prefix + raw)
            if value is not None:
                return value[0].id
        if raw == head:
            raise NoSuchPart(f"HEAD names the branch {shown(raw)}, which does not exist: give a revision, as URL@main")
        if _HEX.fullmatch(name):
            found = find_by_prefix(self._stored, name)
            if found is not None:
                return found
        raise NoSuchPart(f"unknown revision {name!r}")

    def nodes(self, revision: RevisionId, path: bytes, *, deep: bool) -> Iterator[Node]:
        """Yield the node at a path, and the nodes directly in it. With `deep`, yield all nodes below it."""
        node = self._at(revision, path)
        if node is None:
            raise NoSuchPart(f"nothing at {shown(path)} in {revision.hex()}")
        yield node
        if node.type is NodeType.FOLDER:
            yield from self._below(node, deep=deep)

    def text(self, node: Node) -> Text:
        """Return the text of a blob, or the id in hex of a submodule's commit."""
        if node.place is None:
            return whole(node.value)
        found = self._stored.text(*node.place)
        if found is None or found.meta != BLOB:
            raise _missing(node.place[1])
        return found

    def size(self, node: Node) -> int:
        """Return the size of a node's text in bytes, without reading a blob."""
        found = len(node.value) if node.place is None else self._stored.length(*node.place)
        if found is None:
            raise ValueError(f"the object at {shown(node.path)} is missing")
        return found

    def header(self, revision: RevisionId) -> Header | None:
        """Return the header of a commit; None for any other object."""
        record = self._record(revision)
        if record is None:
            raise MissingRevision(revision)
        if record.meta != COMMIT:
            return None
        head, _, message = record.text.partition(b"\n\n")
        message_of(revision.hex(), message)
        author = _field(head, b"\nauthor ")
        coding = _field(head, b"\nencoding ")[:LONGEST_NAME].decode("ascii", "replace") or "utf-8"
        _, parents = self._format.commit(revision, record.text)
        person = _PERSON.match(author)
        who, seconds, zone = author, 0, 0
        if person is not None:
            who, seconds = person[1], int(person[2])
            zone = (int(person[4]) * 60 + int(person[5])) * (-1 if person[3] == b"-" else 1)
        return Header(
            revision.hex(), [parent.hex() for parent in parents], _text(who, coding), seconds, zone,
            _text(message, coding),
        )  # fmt: skip

    def state(self, revision: RevisionId, path: bytes) -> object:
        """Return a value that two revisions share if and only if they have the same type and object at a path; None if
        the path does not exist."""
        node = self._at(revision, path)
        return None if node is None else node[1:]

    def changes(self, revision: RevisionId) -> Iterator[ChangedPath]:
        """Return the differences of a commit's tree from that of its first parent."""
        record = self._object(revision, COMMIT)
        tree, parents = self._format.commit(revision, record.text)
        before = self._format.commit(parents[0], self._object(parents[0], COMMIT).text)[0] if parents else None
        return self._differing(tree, before)

    # -- trees

    def _at(self, revision: RevisionId, path: bytes) -> Node | None:
        node = Node(b"", NodeType.FOLDER, (OBJECT, self._root(revision)))
        for name in path.split(b"/") if path else ():
            if node.type is not NodeType.FOLDER:
                return None
            assert node.place is not None
            found = next((entry for entry in self._entries(node.place[1]) if entry[1] == name), None)
            if found is None:
                return None
            node = _node(node.path, found)
        return node

    def _root(self, revision: RevisionId) -> Key:
        """Return the tree of a commit or of a tag's target. The key of a tree is returned unchanged."""
        key = revision
        while True:
            record = self._object(key)
            if record.meta == TREE:
                return key
            if record.meta == COMMIT:
                return self._format.commit(key, record.text)[0]
            if record.meta != TAG:
                raise NoSuchPart(f"{revision.hex()} is a file, not a tree")
            key, _ = self._format.tag(key, record.text)

    def _below(self, folder: Node, *, deep: bool) -> Iterator[Node]:
        assert folder.place is not None
        levels = [iter(self._entries(folder.place[1]))]
        paths = [folder.path]
        while levels:
            for entry in levels[-1]:
                node = _node(paths[-1], entry)
                yield node
                if deep and node.type is NodeType.FOLDER:
                    levels.append(iter(self._entries(entry[2])))
                    paths.append(node.path)
                    break
            else:
                levels.pop()
                paths.pop()

    def _differing(self, mine: Key, theirs: Key | None) -> Iterator[ChangedPath]:
        """Yield the paths at which the trees differ, in the order of paths. `theirs`: None if there is no such tree."""
        levels = [iter(self._within(mine, theirs))]
        folders = [b""]
        while levels:
            for action, name, new, old in levels[-1]:
                path = folders[-1] + name
                if action:
                    yield ChangedPath(action, path)
                else:
                    levels.append(iter(self._within(new, old)))
                    folders.append(path + b"/")
                    break
            else:
                levels.pop()
                folders.pop()

    def _within(self, new: Key | None, old: Key | None) -> list[_Difference]:
        """Return the differences between two trees of one folder, sorted by path. None stands for a missing tree."""
        found: list[_Difference] = []
        same_names = None if new is None or old is None else self._changed(new, old)
        if same_names is not None:
            for mode, name, one, other in same_names:
                found.append(("", name, one, other) if entry_type(mode) == FOLDER else ("M", name, None, None))
            return found
        ours, others = self._by_name(new), self._by_name(old)
        for name in ours.keys() | others.keys():
            found += _difference(name, ours.get(name), others.get(name))
        # A folder is sorted by its name and a slash, like the paths in it.
        found.sort(key=lambda difference: difference[1] if difference[0] else difference[1] + b"/")
        return found

    def _changed(self, new: Key, old: Key) -> list[ChangedEntry] | None:
        """Return the entries with different objects if the trees have the same names and modes, else None."""
        return self._format.changed(self._object(new, TREE).text, self._object(old, TREE).text)

    def _by_name(self, tree: Key | None) -> dict[bytes, TreeEntry]:
        return {} if tree is None else {entry[1]: entry for entry in self._entries(tree)}

    def _entries(self, tree: Key) -> list[TreeEntry]:
        return self._format.tree(tree, self._object(tree, TREE).text)

    def _object(self, key: Key, meta: bytes | None = None) -> Record:
        record = self._record(key)
        if record is None or (meta is not None and record.meta != meta):
            raise _missing(key)
        return record

    def _record(self, key: Key) -> Record | None:
        record = self._recent.get(key)
        if record is not None:
            self._stored.charge(1, len(record.text))  # The caller parses the text again.
            return record
        record = self._stored.record(OBJECT, key)
        if record is not None and record.meta != BLOB:
            self._recent.put(key, record)
        return record


def find_by_prefix(stored: RepositoryView, digits: str) -> RevisionId | None:
    """Return the revision whose id in hex begins with `digits`, or None."""
    whole = bytes.fromhex(digits) if len(digits) % 2 == 0 else b""
    if whole and stored.ordinal(whole) is not None:
        return whole
    start, half = bytes.fromhex(digits[: len(digits) // 2 * 2]), digits[len(digits) // 2 * 2 :]
    tips = [stored.ordinal(tip.id) for value in stored.refs().values() for tip in value]
    newest = max([ordinal for ordinal in tips if ordinal is not None], default=-1)
    found: RevisionId | None = None
    for revision in map(stored.revision, range(newest + 1)):
        if revision.startswith(start) and (not half or revision.hex().startswith(digits)):
            if found is not None:
                raise NoSuchPart(f"the id {digits} is ambiguous: {found.hex()} and {revision.hex()} begin with it")
            found = revision
    return found


def _missing(key: Key) -> ValueError:
    return ValueError(f"the object {key.hex()} is missing, or has another type than expected")


def _node(folder: bytes, entry: TreeEntry) -> Node:
    mode, name, key = entry
    path = folder + b"/" + name if folder else name
    type_ = _TYPES.get(canonical_mode(mode))
    if type_ is None:
        return Node(path, NodeType.SUBMODULE, None, key.hex().encode())
    return Node(path, type_, (OBJECT, key))


_Difference = tuple[str, bytes, Key | None, Key | None]
"""An action (`A`, `D` or `M`), a name, None and None. Or an empty action, a folder's name, and its new and old tree."""


def _difference(name: bytes, new: TreeEntry | None, old: TreeEntry | None) -> Iterator[_Difference]:
    """Yield the differences between two entries of one name."""
    if new == old:
        return
    new_tree, old_tree = _folder(new), _folder(old)
    is_new, was_old = new is not None and new_tree is None, old is not None and old_tree is None
    if is_new or was_old:
        yield "M" if is_new and was_old else "A" if is_new else "D", name, None, None
    if new_tree is not None or old_tree is not None:
        yield "", name, new_tree, old_tree


def _folder(entry: TreeEntry | None) -> Key | None:
    return entry[2] if entry is not None and entry_type(entry[0]) == FOLDER else None


def _field(head: bytes, begin: bytes) -> bytes:
    """Return the rest of the first line of a commit's header that begins with `begin`; empty if no line does."""
    at = head.find(begin)
    return b"" if at < 0 else head[at + len(begin) :].partition(b"\n")[0]


@functools.cache
def _encodings() -> frozenset[str]:
    modules = {module.name for module in pkgutil.iter_modules(encodings.__path__)}
    return frozenset(modules | encodings.aliases.aliases.keys())


@functools.lru_cache(maxsize=64)
def _encoding(coding: str) -> str:
    """Return Python's name of a known encoding, else an empty string. `codecs` gets no unknown name, because it would
    cache each one."""
    name = encodings.normalize_encoding(coding).lower().replace(".", "_")
    return name if name in _encodings() and codecs.lookup(name).name not in SLOW else ""


def _text(raw: bytes, coding: str) -> str:
    try:
        name = _encoding(coding)
        if name:
            text = raw.decode(name)
            text.encode()  # Some decode to surrogates, which have no place in UTF-8.
            return text
    except (LookupError, ValueError):
        pass  # The encoding is not one of text, or not that of this text.
    return raw.decode("utf-8", "replace")
