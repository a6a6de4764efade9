"""The records and revisions that a push has sent so far: what may be the base of a further record."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from smartserver.records import limits
from smartserver.records.keys import ABSENT, KeyTable
from smartserver.records.model import GraphNode, Key, Parent, RevisionId


class SentVersions:
    """The records of one kind that were sent, or that a parent of what is sent has; one for all copies of a key.

    A version is a number; what is known of it is in arrays, 70 to 80 bytes with its key. As objects it was 500.
    """

    def __init__(self) -> None:
        self.keys = KeyTable()
        self.sizes = array("I")
        """Bytes of its text."""
        self.bases = array("i")
        """The version it rests on; `ABSENT`: none."""
        self.numbers = array("I")
        """Its n in the rule of skip chains."""
        self.encodings = bytearray()
        self.depths = bytearray()
        self.chains = array("Q")
        """Bytes of text of it and of all it rests on."""
        self._last = array("i")
        """Its last copy, `ABSENT` where it was there before this push."""
        self._ordinals = array("I")
        """For each copy the revision of this push that introduced it, as `SentAncestry` numbers it."""
        self._before = array("i")
        """For each copy the copy before it of the same version, or `ABSENT`."""

    def add(self, key: Key, size: int, base: int, number: int, encoding: int) -> int:
        """Add a record that is not here; its version."""
        version = self.keys.number(key)
        rests = base != ABSENT
        self.sizes.append(size)
        self.bases.append(base)
        self.numbers.append(number)
        self.encodings.append(encoding)
        self.depths.append(self.depths[base] + 1 if rests else 0)
        self.chains.append((self.chains[base] if rests else 0) + size)
        self._last.append(ABSENT)
        return version

    def copy(self, version: int, ordinal: int) -> None:
        """Note that a revision of this push introduced it."""
        self._before.append(self._last[version])
        self._last[version] = len(self._ordinals)
        self._ordinals.append(ordinal)

    def is_too_deep(self, base: int, size: int) -> bool:
        """True if a text of that size cannot rest on a version: its chain would be too long."""
        return self.depths[base] >= limits.MAX_DEPTH or self.chains[base] + size > limits.MAX_CHAIN // 2

    def was_sent(self, version: int) -> bool:
        """True if a revision of this push introduced it."""
        return self._last[version] != ABSENT

    def is_in(self, version: int, reach: int) -> bool:
        """True if one of the revisions of `reach`, which has a bit for each, introduced it."""
        copy = self._last[version]
        while copy != ABSENT:
            if reach >> self._ordinals[copy] & 1:
                return True
            copy = self._before[copy]
        return False


class SentAncestry:
    """For each revision of a push all its ancestors in the push, as bits of an integer, while children are to come."""

    def __init__(self) -> None:
        self._revisions = KeyTable()
        """Revisions and their parents, in the order in which they were met."""
        self._children = array("i")
        """The number of children of each that are still to come, where that is known."""
        self._is_begun = False
        self._reach: dict[int, int] = {}

    def begin(self, graph: Iterable[GraphNode]) -> None:
        """Take in the whole graph of the push, where it is known."""
        children = self._children
        for revision, parents in graph:
            self._number(revision)
            for parent in parents:
                children[self._number(parent.id)] += 1
        self._is_begun = True

    def _number(self, revision: RevisionId) -> int:
        number = self._revisions.number(revision)
        if number == len(self._children):
            self._children.append(0)
        return number

    def step(self, revision: RevisionId, parents: Sequence[Parent]) -> tuple[int, int]:
        """The number of `revision`, and the bits of itself and its ancestors."""
        number = self._number(revision)
        before = [self._number(parent.id) for parent in parents]
        reach = 1 << number
        for ancestor, parent in zip(before, parents, strict=True):
            if not parent.absent:
                reach |= self._reach.get(ancestor, 0)
        self._reach[number] = reach
        if self._is_begun:
            children = self._children
            for ancestor in before:
                children[ancestor] -= 1
                if not children[ancestor]:
                    self._reach.pop(ancestor, None)
            if not children[number]:
                del self._reach[number]
        return number, reach
