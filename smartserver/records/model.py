"""The VCS-neutral model: revisions, the records they introduced, and refs. Ids, keys and names are binary."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

RevisionId = bytes
"""The id of a revision, 1 to 1,024 bytes; a hash is its 20 or 32 raw bytes."""

Key = bytes
"""The key of a record, unique within its kind; 1 to 1,024 bytes."""

HERE = b"."
"""The ref name `.`, which stands in a request for the branch that the request's path names, if the request allows that.

A branch that is at the path of its repository is also stored under this name."""


made = tuple.__new__
"""Creates a named tuple, as in `made(Entry, (kind, ...))`. It is used where a tuple is created for each record.

`Entry(...)` does the same in 0.70 us for its nine fields, through a function in Python; `made` takes 0.28 us (`python
-m timeit`, 2026-11-22, CPython 3.11).
"""


class Kind(msgspec.Struct, frozen=True):
    """A kind of record in a repository.

    `check`: the name of a check (`records.check`). `base`: True if a record of this kind may have or be a delta base.
    """

    name: str
    check: str
    base: bool


class Parent(NamedTuple):
    """A parent of a revision. `absent`: True if the writer lacked the parent; the graph then never has this edge."""

    id: RevisionId
    absent: bool = False


class Record(NamedTuple):
    """A keyed, immutable blob. `kind`: an index into the repository's kinds."""

    kind: int
    key: Key
    meta: bytes
    text: bytes


RecordName = tuple[int, Key]
"""The kind and the key of a record."""

SentRecord = RecordName | tuple[int, Key, Key]
"""The name of a record to send. A third item is the key of a possible base of its kind, which the client has or which
was sent before."""

Piece = tuple[int, Iterable[SentRecord]]
"""The ordinal of a revision, and the records to send in its segment. With no records, only the revision's id and
parents are sent."""


class BaseTag:
    """The number by which a record header names its delta base: `NONE`, `FULL_KEY`, else 2+2i or 3+2i."""

    NONE = 0
    FULL_KEY = 1

    @staticmethod
    def entry(index: int) -> int:
        """Return the tag of the record at `index` of the same segment."""
        return 2 + 2 * index

    @staticmethod
    def parent(index: int) -> int:
        """Return the tag of the record of the same kind whose key is the id of parent `index`."""
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
    """The key of the base for `BaseTag.FULL_KEY`, else empty."""
    length: int
    """The length of the fulltext in bytes."""
    frame_length: int
    """The length of the frame in bytes."""
    check: bytes
    """The check of the text; empty if the key proves the text."""


class Segment(NamedTuple):
    """The header of one revision's segment; the frames follow it in entry order."""

    revision: RevisionId
    parents: tuple[Parent, ...]
    entries: tuple[Entry, ...]
    frames_at: int
    """The offset of the first frame from the start of the segment."""
    length: int
    """The length in bytes of the whole segment, including its own length field."""
    headers: tuple[int, ...]
    """The offsets of the record headers from the start of the segment."""

    def base_of(self, entry: Entry) -> Key:
        """Return the key of an entry's base; empty if the entry has no base."""
        tag = entry.base
        if tag == BaseTag.NONE:
            return b""
        if tag == BaseTag.FULL_KEY:
            return entry.base_key
        if tag & 1:
            return self.parents[(tag - 3) >> 1].id
        return self.entries[(tag - 2) >> 1].key


class GraphNode(NamedTuple):
    """A revision in an announced graph, before its segment arrives."""

    revision: RevisionId
    parents: tuple[Parent, ...]


class Plan(Protocol):
    """The content of a push: the graph, and the segments on demand. An adapter (`vcs`) creates it, a client reads
    it."""

    @property
    def graph(self) -> Sequence[GraphNode]:
        """The revisions and their parents, parents first."""

    def segments(self) -> Iterable[bytes]:
        """Make the segments in the order of `graph`, again at each call; a segment may be yielded in several parts.

        Raises:
            vcs.base.CannotSend: an object is missing locally.
        """

    def without_bases(self, keys: Collection[Key]) -> Plan:
        """Return a plan of the same content that uses none of `keys` as a delta base."""


class Tip(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One tip of a ref with its opaque attributes, such as a number. `closed` is the only attribute that the store
    reads."""

    id: RevisionId
    attributes: bytes = b""
    closed: bool = False


RefValue = tuple[Tip, ...]
"""The value of a ref, sorted by id: one tip, or several heads if a branch of the system may have them."""


def encode_ref(value: Sequence[Tip]) -> list[list[object]]:
    """Convert the value of a ref for msgpack, each tip in its shortest form."""
    rows: list[list[object]] = []
    for tip in value:
        row: list[object] = [tip.id]
        if tip.attributes or tip.closed:
            row.append(tip.attributes)
        if tip.closed:
            row.append(True)
        rows.append(row)
    return rows
