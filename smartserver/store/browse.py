"""Answers the selectors that every system understands (`records.browse`) with a tree or a log, as a content body.

The row of a revision in a log is kept encoded, in a block with those of neighbouring revisions of a pack: in memory,
and in the file of summaries beside a large pack. A record is read only if neither has the row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from smartserver.errors import LimitExceeded, NoSuchPart, shown
from smartserver.records.browse import (
    COMPRESSED,
    MAX_GROUP,
    MAX_REVISION,
    NO_TEXT,
    PLAIN,
    ChangeList,
    Contents,
    ListedNode,
    LogEntry,
    LogSelector,
    Node,
    NodeType,
    Selector,
    TreeSelector,
    checked_items,
    encode_item,
    encode_revision,
)
from smartserver.records.bulk import CONTENT_WINDOW_LOG, BulkWriter
from smartserver.records.charge import steps_of
from smartserver.records.content import ReadPlan, damage_of
from smartserver.records.hunks import Buffer
from smartserver.records.model import HERE, RevisionId
from smartserver.records.system import system_of
from smartserver.store.caches import HEADERS
from smartserver.store.content import PartReader, SnapshotView
from smartserver.store.summaries import BITS, BLOCK
from transports.errors import CodedError, TransportError

LONGEST: Final = 16 << 10
"""The most bytes of a row that is cached or stored, so that a block takes at most 4 MiB."""

AT_ONCE: Final = 4 << 20
"""The bytes of rows after which no more rows are read before the first of them is sent."""

FIRST_PIECE: Final = 64 << 10
"""The most bytes of the first piece of a body."""


def browse(view: SnapshotView, contents: Contents, selector: Selector, inner: bytes) -> ReadPlan:
    """Plan the answer to a selector. `inner`: the part of the request's path below the branch, to which the selector's
    path is relative. A missing name is refused here. Trees and headers are read while the answer is sent."""
    path = b"/".join(filter(None, (inner, selector.path)))
    if isinstance(selector, LogSelector):
        newest = _ordinal(view, _find(contents, selector.newest))
        haves = [_ordinal(view, _find(contents, selector.oldest))] if selector.oldest else []
        return ReadPlan(items=_log(view, contents, selector, path, view.newest_first([newest], haves)))
    revision = _find(contents, selector.revision)
    with damage_of(revision):
        nodes = contents.nodes(revision, path, deep=selector.deep)
        first = next(nodes)
    return ReadPlan(items=_tree(view, contents, selector, revision, path, itertools.chain((first,), nodes)))


class ContentBody(PartReader):
    """Reads the bytes of a content body. Each piece is at most twice as long as the previous one, so that the first
    lines of a log arrive early."""

    def __init__(self, items: Iterator[Buffer], level: int) -> None:
        """`level`: the level of zstd; 0 means no compression."""
        checked = checked_items(items)
        parts = _compressed(checked, level) if level else itertools.chain((PLAIN,), checked)
        super().__init__(parts, FIRST_PIECE)


def _compressed(items: Iterator[Buffer], level: int) -> Iterator[bytes]:
    bulk = BulkWriter(level, CONTENT_WINDOW_LOG)
    yield COMPRESSED
    yield from map(bulk.add, items)
    yield bulk.finish()


def _tree(
    view: SnapshotView,
    contents: Contents,
    selector: TreeSelector,
    revision: RevisionId,
    path: bytes,
    nodes: Iterator[Node],
) -> Iterator[Buffer]:
    with damage_of(revision):
        for node in nodes:
            view.charge(steps_of(node.path))
            below = node.path[len(path) :].lstrip(b"/")
            key = node.place[1] if selector.keys and node.place is not None else b""
            if node.type is NodeType.FOLDER or not (selector.texts or selector.sizes):
                yield encode_item(ListedNode(below, node.type, NO_TEXT, key))
                continue
            if not selector.texts:
                yield encode_item(ListedNode(below, node.type, contents.size(node), key))
                continue
            text = contents.text(node)
            yield encode_item(ListedNode(below, node.type, text.length, key))
            yield from text.parts


def _log(
    view: SnapshotView, contents: Contents, selector: LogSelector, path: bytes, newest_first: Iterator[int]
) -> Iterator[bytes]:
    if path:
        newest_first = _touching(view, contents, path, newest_first)
    rows = itertools.islice(_Rows(view, contents, selector).all(newest_first), selector.limit or None)
    gathered: list[msgspec.Raw] = []
    size = 0
    for row in rows:
        if gathered and size + len(row) > MAX_GROUP:
            yield encode_item(gathered)
            gathered.clear()
            size = 0
        gathered.append(msgspec.Raw(row))
        size += len(row)
    if gathered:
        yield encode_item(gathered)


def _find(contents: Contents, name: str) -> RevisionId:
    with damage_of(name.encode() or HERE):
        return contents.find(name)


def _ordinal(view: SnapshotView, revision: RevisionId) -> int:
    found = view.ordinal(revision)
    if found is None:
        raise NoSuchPart(f"the repository does not have revision {shown(revision)}")
    return found


def _touching(view: SnapshotView, contents: Contents, path: bytes, ordinals: Iterator[int]) -> Iterator[int]:
    """Yield the ordinals of the revisions whose content at a path differs from that of each parent. `ordinals`:
    children before parents."""
    states: dict[int, object] = {}

    def state(ordinal: int) -> object:
        if ordinal not in states:
            revision = view.revision(ordinal)
            with damage_of(revision):
                states[ordinal] = contents.state(revision, path)
        return states[ordinal]

    for ordinal in ordinals:
        mine, parents = state(ordinal), view.parents(ordinal)
        if all(state(parent) != mine for parent in parents) and (mine is not None or parents):
            yield ordinal
        del states[ordinal]


def rows_of(
    view: SnapshotView, contents: Contents, ordinals: Iterable[int], *, changes: bool
) -> Iterator[bytes | None]:
    """Yield the encoded row of each revision in a log; None if the revision cannot be read, or the row is too long to
    store."""
    rows = _Rows(view, contents, LogSelector(changes=changes))
    return (_kept(rows.row, ordinal) for ordinal in ordinals)


def row_of(view: SnapshotView, contents: Contents, ordinal: int, *, changes: bool) -> bytes | None:
    """Return the row of one revision as in `rows_of`, read without caches and summaries."""
    return _kept(_Rows(view, contents, LogSelector(changes=changes)).decoded, ordinal)


def _kept(read: Callable[[int], bytes], ordinal: int) -> bytes | None:
    try:
        row = read(ordinal)
    except TransportError:
        raise
    except CodedError:
        return None
    return None if len(row) > LONGEST else row


class _Rows:
    """Reads the encoded rows of a log by ordinal, and caches them in blocks."""

    def __init__(self, view: SnapshotView, contents: Contents, selector: LogSelector) -> None:
        self._view = view
        self._contents = contents
        self._selector = selector
        # If first parents may be missing, the changes depend on which other revisions are stored.
        self._keeps = not (selector.changes and system_of(view.snapshot.state.vcs).ghosts)
        self._first = self._stop = 0
        """The first ordinal of the open block, and the ordinal after its last."""
        self._key = b""
        self._block: list[bytes | None] = []
        self._made = 0
        """The number of rows of the open block that are not in the cache yet."""

    def all(self, ordinals: Iterator[int]) -> Iterator[bytes]:
        """Yield the rows of a log, newest first. Each group of them is read oldest first, because the bases of records
        are older records."""
        try:
            while some := list(itertools.islice(ordinals, min(BLOCK, self._selector.limit or BLOCK))):
                rows: list[bytes | None] = []
                size = 0
                for ordinal in reversed(some):
                    row = self.row(ordinal) if size < AT_ONCE else None
                    size += len(row or b"")
                    rows.append(row)
                for ordinal, row in zip(some, reversed(rows), strict=True):
                    if item := self.row(ordinal) if row is None else row:
                        yield item
        finally:
            self._keep()

    def decoded(self, ordinal: int) -> bytes:
        """Build the row of a revision from the revision's own records."""
        return self._make(self._view.revision(ordinal))

    def row(self, ordinal: int) -> bytes:
        """Return the row of a revision; empty if a log does not show it."""
        if not self._first <= ordinal < self._stop:
            self._keep()
            self._open(ordinal)
        row = self._block[ordinal - self._first]
        if row is None:
            row = self.decoded(ordinal)
            if len(row) <= LONGEST:
                self._block[ordinal - self._first] = row
                self._made += 1
        return row

    def _open(self, ordinal: int) -> None:
        """Open the block of a revision from the cache or the summaries. A block never spans two packs."""
        graph, snapshot = self._view.snapshot.graph, self._view.snapshot
        number = graph.part_at(ordinal)
        part = graph.parts[number]
        block = ordinal - part.first >> BITS
        self._first = part.first + (block << BITS)
        self._stop = min(self._first + BLOCK, part.first + part.count)
        form = 2 * self._selector.changes + self._selector.messages
        self._key = b"%c%b%d" % (form, snapshot.packs[number].entry.name, block)
        kept = HEADERS.get(self._key) if self._keeps else None
        if kept is None and self._keeps:
            messages, changes = self._selector.messages, self._selector.changes
            kept = snapshot.packs[number].summarised(block, messages=messages, changes=changes)
            if kept is not None:
                HEADERS.put(self._key, kept)
        self._block = list(kept or [None] * (self._stop - self._first))

    def _keep(self) -> None:
        """Put the block into the cache if it has new rows."""
        if self._made and self._keeps:
            HEADERS.put(self._key, tuple(self._block))
        self._made = 0

    def _make(self, revision: RevisionId) -> bytes:
        selector, contents = self._selector, self._contents
        with damage_of(revision):
            header = contents.header(revision)
            if header is None:
                return b""
            entry = LogEntry(header.id, header.author, header.seconds, header.zone)
            if selector.messages:
                entry = msgspec.structs.replace(entry, parents=header.parents, message=header.message)
            changes = self._changes(header.id, revision) if selector.changes else None
            row = encode_revision(entry, changes)
        _check_size(header.id, len(row))
        return row

    def _changes(self, name: str, revision: RevisionId) -> ChangeList:
        """Return the paths that a revision changed. Each is encoded when it is read, because as objects all of them may
        need too much memory."""
        charge = self._view.charge
        found = ChangeList()
        for change in self._contents.changes(revision):
            charge(steps_of(change.path))
            found.add(change)
            _check_size(name, len(found.encoded))
        return found


def _check_size(name: str, size: int) -> None:
    if size > MAX_REVISION:
        raise LimitExceeded(f"bytes of what a log says of {name}", size, MAX_REVISION)
