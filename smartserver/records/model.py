"""The VCS-neutral model: revisions, the records they introduced, and refs. Ids, keys and names are binary."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

RevisionId = bytes
"""1 to 1,024 bytes; a hash is its raw bytes, 20 or 32."""

Key = bytes
"""Identifies a record within its kind; 1 to 1,024 bytes."""

HERE = b"."
"""The branch that a request's path names, where the request says that it may; the name, which no path can spell, of a
branch at its repository's own path."""


made = tuple.__new__
"""Makes a named tuple of its values as they are: `made(Entry, (kind, ...))`, for those that are made of each record.

`Entry(...)` does the same by a function that is Python: 0.70 us for its nine fields where this takes 0.28
(`python -m timeit`, 2026-11-22, CPython 3.11).
"""


class Kind(msgspec.Struct, frozen=True):
    """A kind of record a repository holds.

    `check` names an entry of the table in `records.check`; `base`: may a record of this kind have or be a delta base.
    """

    name: str
    check: str
    base: bool


class Parent(NamedTuple):
    """A parent of a revision; `absent`: the writer did not have it, and the edge is cut for ever."""

    id: RevisionId
    absent: bool = False


class Record(NamedTuple):
    """One keyed, immutable blob; `kind` is an index into the repository's kinds."""

    kind: int
    key: Key
    meta: bytes
    text: bytes


RecordName = tuple[int, Key]
"""The kind and the key of a record."""

SentRecord = RecordName | tuple[int, Key, Key]
"""The name of a record that is sent. A third: the key of one of its kind that it may rest on, since the reader has it
or it was sent before."""

Piece = tuple[int, Iterable[SentRecord]]
"""Records that are sent under a revision, which is an ordinal; `()`: only its id and parents are."""


class BaseTag:
    """The number by which a record header names its delta base: `NONE`, `FULL_KEY`, else 2+2i or 3+2i."""

    NONE = 0
    FULL_KEY = 1

    @staticmethod
    def entry(index: int) -> int:
        """The record at `index` of the same segment."""
        return 2 + 2 * index

    @staticmethod
    def parent(index: int) -> int:
        """The record of the same kind whose key is the id of parent `index`."""
        return 3 + 2 * index


class Entry(NamedTuple):
    """The header of one record in a segment."""

    kind: int
    encoding: int
    key: Key
    meta: bytes
    base: int
    """A `BaseTag` value."""
    base_key: Key
    """Key of the base for `BaseTag.FULL_KEY`, else empty."""
    length: int
    """Bytes of the fulltext."""
    frame_length: int
    """Bytes of the frame."""
    check: bytes
    """Empty where the kind's check is its key."""


class Segment(NamedTuple):
    """The header of one revision's segment; the frames follow it in entry order."""

    revision: RevisionId
    parents: tuple[Parent, ...]
    entries: tuple[Entry, ...]
    frames_at: int
    """Offset of the first frame from the start of the segment."""
    length: int
    """Bytes of the whole segment, its own length field included."""
    headers: tuple[int, ...]
    """Offsets of the entries' own bytes from the start of the segment."""

    def base_of(self, entry: Entry) -> Key:
        """The key of `entry`'s base, or empty when it has none."""
        tag = entry.base
        if tag == BaseTag.NONE:
            return b""
        if tag == BaseTag.FULL_KEY:
            return entry.base_key
        if tag & 1:
            return self.parents[(tag - 3) >> 1].id
        return self.entries[(tag - 2) >> 1].key


class GraphNode(NamedTuple):
    """A revision named in a graph announcement, before its segment comes."""

    revision: RevisionId
    parents: tuple[Parent, ...]


class Plan(Protocol):
    """The content of a push: the graph now, the segments when asked. An adapter (`vcs`) makes it, a client reads it."""

    @property
    def graph(self) -> Sequence[GraphNode]:
        """The revisions and their parents, parents first."""

    def segments(self) -> Iterable[bytes]:
        """Segments in the order of `graph`, made anew at each call; one may come in several parts.

        Raises:
            vcs.base.CannotSend: an object is missing here.
        """

    def without_bases(self, keys: Collection[Key]) -> Plan:
        """The same plan, using none of `keys` as a delta base."""


class Tip(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One tip of a ref with its opaque attributes, such as a number; `closed` is the one attribute the store reads."""

    id: RevisionId
    attributes: bytes = b""
    closed: bool = False


RefValue = tuple[Tip, ...]
"""The value of a ref, sorted by id: one tip, or a set of heads where a branch of the system may have several."""


def encode_ref(value: Sequence[Tip]) -> list[list[object]]:
    """A ref's value as it lies in msgpack: the shortest form of each tip."""
    rows: list[list[object]] = []
    for tip in value:
        row: list[object] = [tip.id]
        if tip.attributes or tip.closed:
            row.append(tip.attributes)
        if tip.closed:
            row.append(True)
        rows.append(row)
    return rows
