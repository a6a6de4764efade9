"""`StoredBases`: the records of a repository that a stream rests on, as a native prover asks for them."""

from __future__ import annotations

from collections.abc import Sequence

from smartserver.records.model import Key, RecordName, RevisionId
from smartserver.store.ancestry import Ancestry
from smartserver.store.snapshot import Snapshot


class StoredBases:
    """Answers from one snapshot: see `native.Stored`."""

    def __init__(self, snapshot: Snapshot, ancestry: Ancestry) -> None:
        self._snapshot = snapshot
        self._ancestry = ancestry

    def ordinal(self, revision: RevisionId) -> int | None:
        """The same as of `native.Stored`."""
        return self._snapshot.ordinal(revision)

    def rows(self, names: Sequence[RecordName]) -> list[tuple[int, int, int, int] | None]:
        """The same as of `native.Stored`."""
        found = [self._snapshot.first(kind, key) for kind, key in names]
        return [None if at is None else (at.depth, at.chain_kib, at.lineage, at.length) for at in found]

    def record(self, kind: int, key: Key) -> tuple[bytes, bytes]:
        """The same as of `native.Stored`.

        Raises:
            CorruptFile, TransportError: it cannot be read.
        """
        location = self._snapshot.first(kind, key)
        assert location is not None  # The prover asked for its row before.
        record = self._snapshot.record(location)
        return record.meta, record.text

    def is_below(self, front: Sequence[int], kind: int, key: Key) -> bool:
        """The same as of `native.Stored`."""
        return self._ancestry.is_stored_below(front, self._snapshot.introducers(kind, key))

    def meta_below(self, front: Sequence[int], kind: int, key: Key) -> bytes | None:
        """The same as of `native.Stored`."""
        return self._snapshot.metas([(kind, key)])[0] if self.is_below(front, kind, key) else None
