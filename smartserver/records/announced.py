"""The announced graph of a push: revisions are found by id, in memory of a few times the size of the graph.

A graph of 64 MiB names up to three million revisions. As Python objects they would take gigabytes, and the garbage
collector would stop the process to walk them. So the bytes are kept, with columns of integers: the offset of each id,
the parents of each revision, and a hash table with open addressing over the ids. Objects are made from these on access.

    graph = length count (revision, count (0 parent | distance)*)*
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Final, overload

from smartserver.errors import LimitExceeded, shown
from smartserver.records import limits
from smartserver.records.model import GraphNode, Parent, RevisionId
from smartserver.records.varint import Malformed, decode

BYTES_OF_GRAPH: Final = "bytes of an announced graph"
REVISIONS_OF_GRAPH: Final = "revisions of an announced graph"
PARENTS_OF_GRAPH: Final = "parents of an announced graph"

CHARGED: Final = 4096
"""The number of revisions and parents, some milliseconds of work, that are read before they are charged."""

_ABSENT: Final = 1 << 31
_MENTIONED: Final = 0xFFFFFFFF
"""The value in `_places` for an id that is named only as an absent parent."""
_OUTSIDE: Final = 0xFFFFFFFE
"""The value in `_places` for an id that is named as a parent outside the graph. A revision with this id must not
follow."""


class AnnouncedGraph(Sequence[GraphNode]):
    """The revisions of a graph block, parents before children. A place is the index of a revision among them."""

    def __init__(self, block: bytes, charge: Callable[[int], None] = lambda steps: None) -> None:
        """`charge`: is called repeatedly with the number of revisions and parents that were read."""
        self._block = block
        self._offsets = array("I")
        """The offset of each id in the block."""
        self._lengths = array("H")
        self._places = array("I")
        """The place of the revision with each id; `_MENTIONED` or `_OUTSIDE` if the block has no such revision."""
        self._slots = array("I", bytes(4 * 64))
        """The hash table of the ids: a slot is the number of an id plus one, or 0 if it is free."""
        self._listed = array("I")
        """The number of the id of each revision."""
        self._starts = array("I", (0,))
        self._parents = array("I")
        """The numbers of the ids of each revision's parents, with the bit `_ABSENT` if the parent is marked absent."""
        self._read(charge)

    def __len__(self) -> int:
        return len(self._listed)

    @overload
    def __getitem__(self, place: int) -> GraphNode: ...
    @overload
    def __getitem__(self, place: slice) -> list[GraphNode]: ...
    def __getitem__(self, place: int | slice) -> GraphNode | list[GraphNode]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self)))]
        number = self._listed[place]  # This raises IndexError if there is no such place.
        place %= len(self)
        named = self._parents[self._starts[place] : self._starts[place + 1]]
        parents = [Parent(self._id(parent & ~_ABSENT), parent & _ABSENT != 0) for parent in named]
        return GraphNode(self._id(number), tuple(parents))

    def __iter__(self) -> Iterator[GraphNode]:
        return map(self.__getitem__, range(len(self)))

    def revision(self, place: int) -> RevisionId:
        """Return the id of the revision at a place."""
        return self._id(self._listed[place])

    def find(self, revision: RevisionId) -> int | None:
        """Return the place of a revision; None if it is not listed."""
        number = self._slots[self._slot(revision)]
        place = self._places[number - 1] if number else _OUTSIDE
        return place if place < _OUTSIDE else None

    def _id(self, number: int) -> bytes:
        at = self._offsets[number]
        return self._block[at : at + self._lengths[number]]

    def _slot(self, name: bytes) -> int:
        """Return the index of the slot of an id; of a free slot if the id has none."""
        slots, block, offsets, lengths = self._slots, self._block, self._offsets, self._lengths
        mask = len(slots) - 1
        at = hash(name) & mask
        size = len(name)
        while number := slots[at]:
            begin = offsets[number - 1]
            if lengths[number - 1] == size and block[begin : begin + size] == name:
                break
            at = at + 1 & mask
        return at

    def _number(self, begin: int, end: int) -> int:
        """Return the number of the id in a range of the block. An id that was not named before gets a new number."""
        slot = self._slot(self._block[begin:end])
        number = self._slots[slot]
        if not number:
            self._offsets.append(begin)
            self._lengths.append(end - begin)
            self._places.append(_MENTIONED)
            number = self._slots[slot] = len(self._offsets)
            if 2 * number > len(self._slots):
                self._grow()
        return number - 1

    def _grow(self) -> None:
        self._slots = array("I", bytes(8 * len(self._slots)))
        slots, mask = self._slots, len(self._slots) - 1
        for number in range(len(self._offsets)):
            at = hash(self._id(number)) & mask
            while slots[at]:
                at = at + 1 & mask
            slots[at] = number + 1

    def _read(self, charge: Callable[[int], None]) -> None:
        block = self._block
        length, at = decode(block, 0)
        _limit(BYTES_OF_GRAPH, length, limits.MAX_GRAPH)
        if at + length != len(block):
            raise Malformed(0, f"a graph of {length} bytes in {len(block) - at}")
        count, at = decode(block, at)
        _limit(REVISIONS_OF_GRAPH, count, limits.MAX_ANNOUNCED)
        charged = 0
        for place in range(count):
            at = self._read_revision(place, at)
            if place + len(self._parents) - charged >= CHARGED:
                charge(place + len(self._parents) - charged)
                charged = place + len(self._parents)
        if at != len(block):
            raise Malformed(at, "bytes after the last revision of a graph")

    def _read_revision(self, place: int, at: int) -> int:
        block = self._block
        begin, end = _place_of_id(block, at, *decode(block, at), "revision id")
        number = self._number(begin, end)
        if self._places[number] != _MENTIONED:
            raise Malformed(at, f"revision {shown(self._id(number))} is listed twice or after its child")
        # Its place is set only after its parents, so that naming itself as a parent has an error of its own.
        count, at = decode(block, end)
        _limit("parents of a revision", count, limits.MAX_PARENTS)
        if count > len(block) - at:
            raise Malformed(at, f"parents of a revision: {count} cannot lie in {len(block) - at} bytes")
        _limit(PARENTS_OF_GRAPH, len(self._parents) + count, limits.MAX_ANNOUNCED_PARENTS)
        for _ in range(count):
            distance, at = decode(block, at)
            if distance > place:
                raise Malformed(at, "a parent lies before the first revision")
            if distance:
                self._parents.append(self._listed[place - distance])
                continue
            tag, begin = decode(block, at)
            begin, end = _place_of_id(block, at, tag >> 1, begin, "parent's id")
            parent = self._number(begin, end)
            if parent == number:
                raise Malformed(at, f"revision {shown(self._id(number))} is its own parent")
            if tag & 1:
                parent |= _ABSENT
            elif self._places[parent] < _OUTSIDE:
                named = shown(self._id(parent))
                raise Malformed(at, f"parent {named} is listed before, and not named by its distance")
            else:
                self._places[parent] = _OUTSIDE
            self._parents.append(parent)
            at = end
        self._places[number] = place
        self._listed.append(number)
        self._starts.append(len(self._parents))
        return at


class AnnouncedRevisions(list[GraphNode]):
    """A list of revisions with the methods of `AnnouncedGraph`, for revisions that were not read from a block."""

    def __init__(self, revisions: Sequence[GraphNode]) -> None:
        super().__init__(revisions)
        self._places = {node.revision: place for place, node in reversed(list(enumerate(self)))}

    def revision(self, place: int) -> RevisionId:
        """Return the id of the revision at a place."""
        return self[place].revision

    def find(self, revision: RevisionId) -> int | None:
        """Return the first place of a revision; None if it is not listed."""
        return self._places.get(revision)


def _place_of_id(block: bytes, at: int, length: int, begin: int, what: str) -> tuple[int, int]:
    """Check the length of an id. Return the offsets of its begin and its end in the block."""
    _limit(f"bytes of a {what}", length, limits.MAX_ID)
    end = begin + length
    if not length or end > len(block):
        raise Malformed(at, f"a {what} is empty or cut off")
    return begin, end


def _limit(what: str, value: int, most: int) -> None:
    if value > most:
        raise LimitExceeded(what, value, most)
