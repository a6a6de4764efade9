"""Answers to `Repository.read`: the view that a system reads a repository through, and a graph as a body."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from smartserver.records.bulk import BulkWriter
from smartserver.records.content import Text
from smartserver.records.hunks import Buffer
from smartserver.records.model import Key, Record, RefValue, RevisionId
from smartserver.records.segment import encode_header
from smartserver.store.allowance import Allowance
from smartserver.store.model import KnownVersion
from smartserver.store.parts import LARGE
from smartserver.store.snapshot import Snapshot


class SnapshotView:
    """A request's view of a repository as a system reads it (`records.content.RepositoryView`); reads are charged."""

    def __init__(
        self,
        refs: Callable[[], Mapping[bytes, RefValue]],
        values: Callable[[str], Mapping[bytes, bytes]],
        snapshot: Snapshot,
        allowance: Allowance,
    ) -> None:
        """`refs`, `values`: as the request sees the refs, and a map by its name."""
        self.refs = refs
        self.map = values
        self.snapshot = snapshot
        self._allowance = allowance
        allowance.reads(*snapshot.extent)

    def charge(self, steps: int, size: int = 0) -> None:
        self._allowance.charge(steps)
        if size:
            self._allowance.decode(size)

    def changed(self, name: str, known: tuple[bytes, int, int]) -> frozenset[bytes] | None:
        return self.snapshot.state.changed_keys(name, KnownVersion(*known))

    def setting(self, name: str) -> bytes | None:
        return self.snapshot.state.settings.get(name)

    def ordinal(self, revision: RevisionId) -> int | None:
        self._allowance.charge(1)
        return self.snapshot.ordinal(revision)

    def revision(self, ordinal: int) -> RevisionId:
        self._allowance.charge(1)
        return self.snapshot.revision(ordinal)

    def parents(self, ordinal: int) -> Sequence[int]:
        self._allowance.charge(1)
        return self.snapshot.graph.parents(ordinal)

    def first_parent(self, ordinal: int) -> int | None:
        self._allowance.charge(1)
        return self.snapshot.first_parent(ordinal)

    def reached(self, wants: Sequence[int], haves: Sequence[int]) -> Sequence[int]:
        return self.snapshot.graph.missing(wants, haves, (), self._allowance.charge)

    def newest_first(self, wants: Sequence[int], haves: Sequence[int]) -> Iterator[int]:
        """The ordinals of `wants` and their ancestors without `haves` and theirs, descending. The walk is lazy."""
        return self.snapshot.graph.newest_first(wants, haves, charge=self._allowance.charge)

    def record(self, kind: int, key: Key) -> Record | None:
        self._allowance.charge(1)
        return self.snapshot.lookup(kind, key, self._allowance.decode)

    def text(self, kind: int, key: Key) -> Text | None:
        self._allowance.charge(1)
        return self.snapshot.text(kind, key, self._allowance.decode)

    def length(self, kind: int, key: Key) -> int | None:
        self._allowance.charge(1)
        location = self.snapshot.first(kind, key)
        return None if location is None else location.length


class PartReader:
    """The bytes of parts, each made when it is needed, front to back; for one thread at a time."""

    def __init__(self, parts: Iterator[Buffer], piece: int = sys.maxsize) -> None:
        """`piece`: bytes of the first piece at most; each may be twice as long as the one before."""
        self.segments = 0
        """Sent so far."""
        self.size = 0
        """Bytes read so far."""
        self._parts = parts
        self._rest: Buffer = b""
        """What is left of the last part."""
        self._piece = piece

    def read(self, size: int) -> bytes:
        """The next bytes, at most `size`; empty at the end.

        Raises:
            CorruptFile, CorruptRecord: a record cannot be read.
            NoSuchFile: a pack not opened before is gone.
        """
        gathered: list[Buffer] = []
        missing = min(size, self._piece)
        self._piece = max(self._piece, 2 * missing)
        while missing and (part := self._rest or next(self._parts, None)) is not None:
            self._rest = b""
            if len(part) > missing:
                # Views: the rest is not copied for each piece of it.
                view = memoryview(part)
                part, self._rest = view[:missing], view[missing:]
            gathered.append(part)
            missing -= len(part)
        read = b"".join(gathered)
        if len(self._rest) <= LARGE:
            self._rest = bytes(self._rest)  # A view would keep all of a large text.
        self.size += len(read)
        return read


class GraphReader(PartReader):
    """The bytes of a graph: a bulk stream of segments without records, one for each revision."""

    def __init__(self, view: SnapshotView, ordinals: Sequence[int]) -> None:
        super().__init__(self._encode(view, ordinals))

    def _encode(self, view: SnapshotView, ordinals: Sequence[int]) -> Iterator[bytes]:
        bulk = BulkWriter()
        snapshot, kinds = view.snapshot, view.snapshot.state.kinds
        for ordinal in ordinals:
            view.charge(1)
            self.segments += 1
            yield bulk.add(encode_header(snapshot.revision(ordinal), snapshot.parents(ordinal), (), 0, kinds))
        yield bulk.finish()
