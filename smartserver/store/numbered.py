"""`Numbered`: byte strings numbered in the order they come, found by their content.

It takes some 22 bytes for each beside its own. A dict of Python's takes 200 for the key of a record, its number and its
place: a push of much history would take most of its memory for that.
"""

from __future__ import annotations

from array import array

from smartserver.errors import LimitExceeded

LEAST = 1 << 4
"""Slots of an empty table: most pushes bring some ten records."""
MAX_JOINED = 0xFFFFFFFF
"""Bytes of all strings together."""
_NUMBER = 0xFFFFFFFF
"""The bits of a slot that are a number and one; above them are 32 bits of the hash. A slot of 0 is free."""


class Numbered:
    """Byte strings by number, 4 GiB together at most; several may be the same one. For one thread."""

    __slots__ = ("_mask", "_slots", "distinct", "ends", "joined")

    def __init__(self) -> None:
        self.joined = bytearray()
        """All of them, in order; not to be changed."""
        self.ends = array("I", (0,))
        """Where each ends in it, after the zero where the first begins; not to be changed."""
        self.distinct = 0
        """How many different ones there are."""
        self._slots = array("Q", bytes(8 * LEAST))
        """An open hash table, at most two thirds full; nobody can foresee what Python's hash of bytes is."""
        self._mask = LEAST - 1

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, number: int) -> bytes:
        return bytes(self.joined[self.ends[number] : self.ends[number + 1]])

    def find(self, name: bytes) -> int:
        """The lowest number of a string; -1 where it was not added."""
        slots, mask = self._slots, self._mask
        part = hash(name) >> 32 & _NUMBER
        at = part & mask
        while slot := slots[at]:
            if slot >> 32 == part:
                number = (slot & _NUMBER) - 1
                if self.joined[self.ends[number] : self.ends[number + 1]] == name:
                    return number
            at = at + 1 & mask
        return -1

    def add(self, name: bytes) -> int:
        """Give a string the next number; what is its lowest one now.

        Raises:
            LimitExceeded: all together are longer than 4 GiB.
        """
        ends, slots, mask = self.ends, self._slots, self._mask
        number = len(ends) - 1
        end = ends[number] + len(name)
        if end > MAX_JOINED:
            raise LimitExceeded("bytes of the names of one pack's records or revisions", end, MAX_JOINED)
        self.joined += name
        ends.append(end)
        part = hash(name) >> 32 & _NUMBER
        at = part & mask
        while slot := slots[at]:
            if slot >> 32 == part:
                first = (slot & _NUMBER) - 1
                if self.joined[ends[first] : ends[first + 1]] == name:
                    return first
            at = at + 1 & mask
        slots[at] = part << 32 | number + 1
        self.distinct += 1
        if self.distinct * 3 > len(slots) * 2:
            self._grow()
        return number

    def _grow(self) -> None:
        old = self._slots
        slots = self._slots = array("Q", bytes(16 * len(old)))
        mask = self._mask = len(slots) - 1
        for slot in old:
            if slot:
                at = slot >> 32 & mask
                while slots[at]:
                    at = at + 1 & mask
                slots[at] = slot


class Numbering:
    """What the records and the revisions of a pack are known by, each numbered in the order in which they lie in it."""

    def __init__(self) -> None:
        self.records = Numbered()
        """The byte of a record's kind, and its key."""
        self.revisions = Numbered()
        """Ids."""
