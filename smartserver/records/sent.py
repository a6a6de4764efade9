"""The records and revisions that a push has sent so far, among which the bases of further records are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from smartserver.records import limits
from smartserver.records.cache import Cache
from smartserver.records.model import Key, Parent, RevisionId

_REACH_CACHE: Final = 32 << 20
"""The most bytes of cached sets of ancestors. Evicted sets are computed again."""

_ENTRY: Final = 256
"""Bytes of memory that an entry of the cache takes besides its bits."""


@dataclass(eq=False, slots=True)
class SentVersion:
    """A record that the push has sent, or that the remote has in a parent revision. Copies of one key share an
    object."""

    key: Key
    size: int
    """The length of the version's text in bytes."""
    base: SentVersion | None
    number: int
    """The position of the version among the versions of its path, from 0; `bases.skip_distance` finds a base by it."""
    encoding: int
    revisions: list[int] = field(default_factory=list)
    """The numbers of the revisions of this push that introduced the record; empty if none has."""
    depth: int = field(init=False)
    chain: int = field(init=False)
    """The length in bytes of all texts along the record's chain, including its own."""

    def __post_init__(self) -> None:
        self.depth = 0 if self.base is None else self.base.depth + 1
        self.chain = self.size if self.base is None else self.base.chain + self.size

    def is_too_deep(self, size: int) -> bool:
        """Tell whether this record cannot be the base of a text of `size` bytes, because the chain would be too
        long."""
        return self.depth >= limits.MAX_DEPTH or self.chain + size > limits.MAX_CHAIN // 2

    def is_in(self, reach: int) -> bool:
        """Tell whether a revision of `reach` introduced the record. `reach` has a bit for each revision."""
        return any(reach >> revision & 1 for revision in reversed(self.revisions))


class SentAncestry:
    """Computes, for each revision of a push, its ancestors among the pushed revisions, as bits of an integer."""

    def __init__(self) -> None:
        self._numbers: dict[RevisionId, int] = {}
        self._parents: list[list[int]] = []
        self._reach = Cache[int, int](_REACH_CACHE, lambda reach: reach.bit_length() // 8 + _ENTRY)

    def step(self, revision: RevisionId, parents: Sequence[Parent]) -> tuple[int, int]:
        """Add a revision if it is new. Return its number, and an integer with the bits of the revision and its
        ancestors."""
        known = [self._numbers.get(parent.id) for parent in parents if not parent.absent]
        number = self._numbers.setdefault(revision, len(self._numbers))
        if number == len(self._parents):
            self._parents.append([parent for parent in known if parent is not None])
        reach, todo = 1 << number, list(self._parents[number])
        while todo:
            ancestor = todo.pop()
            if not reach >> ancestor & 1:
                kept = self._reach.get(ancestor)
                reach |= kept or 1 << ancestor
                todo += self._parents[ancestor] if kept is None else ()
        self._reach.put(number, reach)
        return number, reach
