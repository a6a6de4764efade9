"""A `RepositoryView` that says what it was charged for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from smartserver.records.content import Text
from smartserver.records.model import Key, Record, RefValue, RevisionId
from smartserver.store.allowance import Allowance


class Charged:
    """A `RepositoryView` of records in memory, whose revisions have the ordinals in which they came: charges an
    allowance for what a system tells it."""

    def __init__(self) -> None:
        self.allowance = Allowance()
        self.records: dict[tuple[int, Key], Record] = {}
        self.order: list[RevisionId] = []
        self.branches: dict[bytes, RefValue] = {}

    def charge(self, steps: int, size: int = 0) -> None:
        """Charge, as the store does."""
        self.allowance.charge(steps)
        self.allowance.decode(size)

    def refs(self) -> Mapping[bytes, RefValue]:
        return self.branches

    def map(self, name: str) -> Mapping[bytes, bytes]:
        return {}

    def changed(self, name: str, known: tuple[bytes, int, int]) -> Collection[bytes] | None:
        return None

    def setting(self, name: str) -> bytes | None:
        return None

    def ordinal(self, revision: RevisionId) -> int | None:
        return self.order.index(revision) if revision in self.order else None

    def revision(self, ordinal: int) -> RevisionId:
        return self.order[ordinal]

    def parents(self, ordinal: int) -> Sequence[int]:
        raise AssertionError("the driver asks for that")

    def first_parent(self, ordinal: int) -> int | None:
        raise AssertionError("the driver asks for that")

    def reached(self, wants: Sequence[int], haves: Sequence[int], absent: Sequence[int] = ()) -> Sequence[int]:
        raise AssertionError("the driver asks for that")

    def record(self, kind: int, key: Key) -> Record | None:
        return self.records.get((kind, key))

    def prefetch(self, names: Iterable[tuple[int, Key]]) -> None:
        """Nothing is behind a link."""

    def text(self, kind: int, key: Key) -> Text | None:
        found = self.record(kind, key)
        return None if found is None else Text(found.meta, len(found.text), (found.text,))

    def length(self, kind: int, key: Key) -> int | None:
        found = self.record(kind, key)
        return None if found is None else len(found.text)
