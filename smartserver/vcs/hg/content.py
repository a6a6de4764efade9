"""`HgContents` reads trees and changesets from the store, for `smartserver export`, `ls`, `cat` and `log`.

Names are looked up as in `vcs.hg.reading`. A manifest lists only files; folders follow from the paths of files. A
subrepository is not shown, but the files `.hgsub` and `.hgsubstate` are.
"""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from smartserver.errors import MissingRevision, NoSuchPart, shown
from smartserver.records.alike import common_start
from smartserver.records.browse import ChangedPath, Header, Node, NodeType, message_of
from smartserver.records.content import RepositoryView, Text, whole
from smartserver.records.hunks import Buffer
from smartserver.records.model import Key, Record, RevisionId
from smartserver.vcs.hg.format import (
    changeset_manifest,
    differing,
    file_text,
    has_open_metadata,
    lines_of,
    lines_starting,
    read_changeset,
    read_line,
)
from smartserver.vcs.hg.kinds import BOOKMARKS, CHANGESET, FILE, MANIFEST, NULL, file_key, parents_of
from smartserver.vcs.hg.reading import Finder, newest_open

AT: Final = b"@"
"""The bookmark that a clone checks out."""

DEFAULT: Final = b"default"
"""The branch that a clone checks out if the bookmark `AT` does not exist."""

MAX_SECONDS: Final = 1 << 53
"""The most seconds from 1970 to a date that is shown. Mercurial's own commands accept only dates of 32 bits."""

MAX_METADATA: Final = 1 << 20
"""The most bytes of a file version's metadata. Mercurial writes only the path and version of one other file into it."""

_TYPES: Final = {b"": NodeType.FILE, b"x": NodeType.EXECUTABLE, b"l": NodeType.LINK}


class HgContents:
    """The `Contents` of a Mercurial repository."""

    def __init__(self, stored: RepositoryView, branch: bytes) -> None:
        """`branch`: the branch that an empty name denotes, if it exists."""
        self._stored = stored
        self._branch = branch

    def find(self, name: str) -> RevisionId:
        """Return the changeset that a name denotes. An empty name denotes the changeset that a clone checks out."""
        raw = name.encode()
        finder = Finder(self._stored, [raw])
        found = finder.find(raw) if raw else self._default(finder)
        if found == NULL:
            raise NoSuchPart(f"there is no changeset {name}" if name else "the repository has no changeset yet")
        return found

    def nodes(self, revision: RevisionId, path: bytes, *, deep: bool) -> Iterator[Node]:
        """Yield the node at a path, and the nodes directly in it. With `deep`, yield all nodes below it."""
        manifest = self._manifest(revision)
        line = _line_at(manifest, path)
        if line:
            yield _node(line)
            return
        start = path + b"/" if path else b""
        lines = lines_of(lines_starting(manifest, start))
        if path and not lines:
            raise NoSuchPart(f"nothing at {shown(path)} in {revision.hex()}")
        yield _folder(path)
        yield from _all_below(lines, path) if deep else _children(lines, start)

    def text(self, node: Node) -> Text:
        """Return the text of a file without Mercurial's metadata, or the target of a link."""
        if node.place is None:
            return whole(b"")  # As Mercurial reads the null version, which no tool of its own writes.
        found = self._stored.text(*node.place)
        if found is None:
            raise _missing(node.place[1])
        parts = iter(found.parts)
        begin = self._with_metadata(parts)
        rest = file_text(begin)
        return Text(found.meta, found.length - len(begin) + len(rest), itertools.chain((rest,), parts))

    def _with_metadata(self, parts: Iterator[Buffer]) -> bytes:
        """Return the first part of a text, and further parts as far as its metadata extend."""
        begin = bytes(next(parts, b""))
        if not has_open_metadata(begin):
            return begin
        gathered, searched = bytearray(begin), 0
        while has_open_metadata(gathered, searched) and len(gathered) < MAX_METADATA:
            self._stored.charge(1)
            searched = len(gathered)
            part = next(parts, None)
            if part is None:
                break
            gathered += part
        return bytes(gathered)

    def size(self, node: Node) -> int:
        """Return the size of a node's text in bytes. The text must be read, because it may begin with metadata."""
        return self.text(node).length

    def header(self, revision: RevisionId) -> Header:
        """Return the header of a changeset."""
        record = self._changeset(revision)
        said = read_changeset(record.text)
        message = message_of(revision.hex(), said.message)
        return Header(
            revision.hex(),
            [parent.hex() for parent in parents_of(record.meta) if parent != NULL],
            said.user.decode("utf-8", "replace"),
            max(-MAX_SECONDS, min(said.seconds, MAX_SECONDS)),
            _minutes_east(said.offset),
            message.decode("utf-8", "replace"),
        )

    def state(self, revision: RevisionId, path: bytes) -> object:
        """Return a value that differs between revisions if the file or folder at a path differs: the manifest's line of
        a file, or a hash of the lines below a folder. None if the path does not exist."""
        manifest = self._manifest(revision)
        line = _line_at(manifest, path)
        below = b"" if line else lines_starting(manifest, path + b"/" if path else b"")
        return line or (hashlib.blake2b(below).digest() if below else None)

    def changes(self, revision: RevisionId) -> Iterator[ChangedPath]:
        """Yield the differences between a changeset's manifest and that of its first parent."""
        first, _ = parents_of(self._changeset(revision).meta)
        before = b"" if first == NULL else self._manifest(first)
        mine, theirs = differing(self._manifest(revision), before)
        for path in sorted(mine.keys() | theirs.keys()):
            yield ChangedPath("D" if path not in mine else "M" if path in theirs else "A", path)

    def _default(self, finder: Finder) -> RevisionId:
        """Return the changeset that `hg clone` checks out, of the whole repository or of a branch."""
        stored, refs = self._stored, self._stored.refs()
        value = refs.get(self._branch)
        if value is None:
            marked = stored.map(BOOKMARKS).get(AT)
            if marked is not None and stored.ordinal(marked) is not None:
                return marked
            value = refs.get(DEFAULT)
        return finder.find(b"tip") if value is None else newest_open(stored, value)

    def _changeset(self, revision: RevisionId) -> Record:
        record = self._stored.record(CHANGESET, revision)
        if record is None:
            raise MissingRevision(revision)
        return record

    def _manifest(self, revision: RevisionId) -> bytes:
        node = changeset_manifest(self._changeset(revision).text)
        return b"" if node == NULL else self._record(MANIFEST, node).text

    def _record(self, kind: int, key: Key) -> Record:
        record = self._stored.record(kind, key)
        if record is None:
            raise _missing(key)
        return record


def _missing(key: Key) -> ValueError:
    return ValueError(f"the record {shown(key)} is missing")


def _line_at(manifest: bytes, path: bytes) -> bytes:
    """Return the manifest's line of a file; empty if no file is at the path."""
    return lines_starting(manifest, path + b"\0")[:-1] if path else b""


def _node(line: bytes) -> Node:
    path, node, flag = read_line(line)
    return Node(path, _TYPES[flag], None if node == NULL else (FILE, file_key(path, node)))


def _folder(path: bytes) -> Node:
    return Node(path, NodeType.FOLDER, None)


def _children(lines: Sequence[bytes], start: bytes) -> Iterator[Node]:
    """Yield the nodes directly in a folder. `lines`: the manifest's lines of all files below it. `start`: the folder's
    path and a slash; empty for the root."""
    at = 0
    while at < len(lines):
        name, slash, _ = lines[at][len(start) :].partition(b"/")
        if slash:
            yield _folder(start + name)
            at = bisect_left(lines, start + name + b"0", at)  # `0` follows the slash: skip the lines of the folder.
        else:
            yield _node(lines[at])
            at += 1


def _all_below(lines: Sequence[bytes], folder: bytes) -> Iterator[Node]:
    around = folder + b"/" if folder else b""
    for line in lines:
        node = _node(line)
        at = len(around)
        if not node.path.startswith(around):
            at = node.path.rfind(b"/", 0, common_start(node.path, around)) + 1
        while (at := node.path.find(b"/", at) + 1) > 0:
            around = node.path[:at]
            yield _folder(around[:-1])
        yield node


def _minutes_east(offset: int) -> int:
    """Return the minutes that a clock is ahead of UTC, rounded as in Mercurial. `offset`: the seconds it is behind."""
    minutes = min(abs(offset) // 60, MAX_SECONDS)
    return -minutes if offset > 0 else minutes
