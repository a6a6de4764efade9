"""Answers the selectors that every system understands (`records.browse`): a tree or a log, as a content body.

What a log says of a revision is kept encoded, in blocks of revisions that lie side by side in a pack: of a log that was
asked for before, no record is read again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from smartserver.errors import CorruptRecord, NoSuchPart, shown
from smartserver.records.browse import (
    COMPRESSED,
    NO_TEXT,
    PLAIN,
    Contents,
    Entry,
    LogEntry,
    LogSelector,
    Node,
    NodeType,
    Selector,
    TreeSelector,
    encode_item,
)
from smartserver.records.bulk import BulkWriter
from smartserver.records.content import ReadPlan
from smartserver.records.model import RevisionId
from smartserver.store.caches import HEADERS, Block
from smartserver.store.content import SnapshotView

_BITS: Final = 8
BLOCK: Final = 1 << _BITS
"""Revisions of a pack whose headers are kept together; a log of fewer keeps none."""


def browse(view: SnapshotView, contents: Contents, selector: Selector, inner: bytes) -> ReadPlan:
    """The answer to a selector. `inner`: what the request's path leads to inside the tree: its paths begin there.

    What is named and not there is refused here. All else is read as it is sent, for as long as anybody takes it.

    Raises:
        MissingRevision, NoSuchPart: what it names is not there.
        CorruptRecord: it cannot be read.
    """
    path = b"/".join(filter(None, (inner, selector.path)))
    if isinstance(selector, LogSelector):
        newest = _ordinal(view, contents.find(selector.newest))
        haves = [_ordinal(view, contents.find(selector.oldest))] if selector.oldest else []
        return ReadPlan(items=_log(view, contents, selector, path, view.reached([newest], haves, [])))
    revision = contents.find(selector.revision)
    with _reading(revision):
        nodes = contents.nodes(revision, path, deep=selector.deep)
        first = next(nodes)
    return ReadPlan(items=_tree(contents, selector, revision, path, itertools.chain((first,), nodes)))


class ContentBody:
    """The bytes of a content body, front to back; for one thread at a time."""

    def __init__(self, items: Iterator[bytes], level: int) -> None:
        """`level`: of zstd; 0: it is not compressed."""
        self.segments = 0
        """It has none."""
        self.size = 0
        """Bytes read so far."""
        self._parts = _compressed(items, level) if level else itertools.chain((PLAIN,), items)
        self._rest: bytes | memoryview = b""
        """What is left of the last part."""

    def read(self, size: int) -> bytes:
        """The next bytes, at most `size`; empty at the end.

        Raises:
            CorruptFile, CorruptRecord: a record cannot be read.
            NoSuchFile: a pack not opened before is gone.
        """
        gathered: list[bytes | memoryview] = []
        missing = size
        while missing and (part := self._rest or next(self._parts, None)) is not None:
            self._rest = b""
            if len(part) > missing:
                # Views: the rest of a large text is not copied for each piece of it.
                view = memoryview(part)
                part, self._rest = view[:missing], view[missing:]
            gathered.append(part)
            missing -= len(part)
        read = b"".join(gathered)
        self.size += len(read)
        return read


def _compressed(items: Iterator[bytes], level: int) -> Iterator[bytes]:
    bulk = BulkWriter(level)
    yield COMPRESSED
    for item in items:
        yield bulk.add(item)
    yield bulk.finish()


def _tree(
    contents: Contents, selector: TreeSelector, revision: RevisionId, path: bytes, nodes: Iterator[Node]
) -> Iterator[bytes]:
    with _reading(revision):
        for node in nodes:
            below = node.path[len(path) :].lstrip(b"/")
            key = node.place[1] if selector.keys and node.place is not None else b""
            if node.type is NodeType.FOLDER or not (selector.texts or selector.sizes):
                yield encode_item(Entry(below, node.type, NO_TEXT, key))
                continue
            text = contents.text(node)
            yield encode_item(Entry(below, node.type, len(text), key))
            if selector.texts:
                yield text


def _log(
    view: SnapshotView, contents: Contents, selector: LogSelector, path: bytes, reached: Sequence[int]
) -> Iterator[bytes]:
    newest_first: Iterator[int] = reversed(reached)
    if path:
        newest_first = _touching(view, contents, path, newest_first)
    found = filter(None, map(_Rows(view, contents, selector).row, newest_first))
    rows = itertools.islice(found, selector.limit or None)
    # Many at a time: a step of a generator costs more than a row that is kept.
    while some := list(itertools.islice(rows, BLOCK)):
        yield b"".join(some)


def _ordinal(view: SnapshotView, revision: RevisionId) -> int:
    found = view.ordinal(revision)
    if found is None:
        raise NoSuchPart(f"the revision {shown(revision)} is not here")
    return found


def _touching(view: SnapshotView, contents: Contents, path: bytes, ordinals: Iterator[int]) -> Iterator[int]:
    """Those whose tree differs at a path from that of each parent; a parent comes after its children."""
    states: dict[int, object] = {}

    def state(ordinal: int) -> object:
        if ordinal not in states:
            revision = view.revision(ordinal)
            with _reading(revision):
                states[ordinal] = contents.state(revision, path)
        return states[ordinal]

    for ordinal in ordinals:
        mine = state(ordinal)
        if all(state(parent) != mine for parent in view.parents(ordinal)) and (
            mine is not None or view.parents(ordinal)
        ):
            yield ordinal
        del states[ordinal]


class _Rows:
    """The items of a log, by the ordinals of their revisions."""

    def __init__(self, view: SnapshotView, contents: Contents, selector: LogSelector) -> None:
        self._view = view
        self._contents = contents
        self._selector = selector
        self._keeps = not 0 < selector.limit < BLOCK
        self._first = self._stop = 0
        """The ordinals of the block."""
        self._block: Block = ()

    def row(self, ordinal: int) -> bytes:
        """The item of a revision; empty where a log does not show it."""
        if not self._first <= ordinal < self._stop:
            self._open(ordinal)
        return self._block[ordinal - self._first] if self._block else self._make(self._view.revision(ordinal))

    def _open(self, ordinal: int) -> None:
        """The block of a revision, which lies whole in one pack."""
        graph, snapshot = self._view.snapshot.graph, self._view.snapshot
        number = graph.part_at(ordinal)
        part = graph.parts[number]
        block = ordinal - part.first >> _BITS
        self._first = part.first + (block << _BITS)
        self._stop = min(self._first + BLOCK, part.first + part.count)
        form = 2 * self._selector.changes + self._selector.messages
        key = b"%c%b%d" % (form, snapshot.packs[number].entry.name, block)
        kept = HEADERS.get(key)
        if kept is None and self._keeps:
            revisions = snapshot.packs[number].index.revisions(self._first - part.first, self._stop - part.first)
            kept = tuple(map(self._make, revisions))
            HEADERS.put(key, kept)
        self._block = kept or ()

    def _make(self, revision: RevisionId) -> bytes:
        selector, contents = self._selector, self._contents
        try:
            header = contents.header(revision)
            if header is None:
                return b""
            entry = LogEntry(header.id, header.author, header.seconds, header.zone)
            if selector.messages:
                entry = msgspec.structs.replace(entry, parents=header.parents, message=header.message)
            if selector.changes:
                changes = [(change.action, change.path) for change in contents.changes(revision)]
                entry = msgspec.structs.replace(entry, changes=changes)
            return encode_item(entry)
        except ValueError as wrong:
            raise _damaged(revision, wrong) from wrong


@contextmanager
def _reading(revision: RevisionId) -> Iterator[None]:
    """What cannot be read is damage of this revision."""
    try:
        yield
    except ValueError as wrong:
        raise _damaged(revision, wrong) from wrong


def _damaged(revision: RevisionId, wrong: ValueError) -> CorruptRecord:
    return CorruptRecord(revision, revision, f"it cannot be read: {wrong}")
