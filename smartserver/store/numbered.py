"""`Numbered`: the records and the revisions of a pack, numbered in the order in which they lie in it."""

from __future__ import annotations

from array import array

from smartserver.errors import LimitExceeded
from smartserver.records.keys import KeyTable

MAX_JOINED = 0xFFFFFFFF
"""Bytes of all names together: an index says their ends in four bytes."""


class Numbered(KeyTable):
    """Names by number, 4 GiB together at most; several may be the same one. For one thread."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = array("I", (0,))

    def add(self, name: bytes) -> int:
        """Give a name the next number; its lowest one then."""
        end = len(self.joined) + len(name)
        if end > MAX_JOINED:
            raise LimitExceeded("bytes of the names of one pack's records or revisions", end, MAX_JOINED)
        first = self.find(name)
        if first < 0:
            return self.number(name)
        self.joined += name
        self.ends.append(end)
        return first


class Numbering:
    """The names of one pack."""

    def __init__(self) -> None:
        self.records = Numbered()
        """The byte of a record's kind, and its key."""
        self.revisions = Numbered()
        """Ids."""
