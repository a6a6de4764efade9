"""The values of a repository that other packages use, without I/O.

A verb gets a `Transaction` (`store.transaction`): a snapshot of the repository, the announced graph and the changes of
earlier calls. The verb adds its changes or refuses. A commit then makes all changes durable in one record, or runs the
verbs again if another writer was first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from smartserver.records.model import Piece

INCOMPLETE = "incomplete"
"""The name of the setting that a repository has while further requests of a copy are to come."""


class PullPlan(msgspec.Struct, frozen=True):
    """The segments that answer a pull, in arrival order (parents first)."""

    ranges: tuple[tuple[int, int], ...]
    """Half-open ranges of global ordinals."""
    segments: int
    size: int
    """The size of all these segments in bytes."""
    common: tuple[bool, ...]
    """For each have of the client, True if the revision is stored."""
    bulk: bool = False
    """True if the segments are sent as one bulk stream."""
    expanded: bool = False
    """True if the server may decompress frames in the bulk stream (`store.bulk`)."""

    def __bool__(self) -> bool:
        """Tell whether any segment must be sent."""
        return self.segments > 0


class ContentPlan(msgspec.Struct, frozen=True):
    """The data of an answer other than whole revisions: `pieces`, or `items`, or neither. They can be read only
    once."""

    pieces: Iterator[Piece] | None
    """The records or revisions of the answer."""
    items: Iterator[bytes | memoryview] | None = None
    """The items of a content body (`records.browse`)."""

    def __bool__(self) -> bool:
        """Tell whether the answer has a body."""
        return self.pieces is not None or self.items is not None


class KnownVersion(NamedTuple):
    """The newest version that a client has seen. `mark`: the mark of this version, which is needed because the same
    version numbers are used again after a backup is restored."""

    incarnation: bytes
    version: int
    mark: int


class Changes(msgspec.Struct, frozen=True):
    """The changes of a repository after version `since`; if `since` is None, the whole state."""

    incarnation: bytes
    version: int
    since: int | None
    refs: Mapping[bytes, bytes | None]
    """The values in msgpack (`records.model.encode_ref`), as they are stored and sent."""
    maps: Mapping[str, Mapping[bytes, bytes | None]]
    vcs: str
    settings: Mapping[str, bytes]
    """All settings. Both `settings` and `vcs` are empty if neither changed after `since`."""
    mark: int = 0
    """The mark of `version`, as in `KnownVersion`."""


class RepositoryStats(msgspec.Struct, frozen=True):
    """Counts of a repository, and sizes in bytes."""

    format: str
    features: list[str]
    vcs: str
    version: int
    """The number of the newest record of the log."""
    refs: int
    entries: int
    """The number of entries in all maps."""
    revisions: int
    records: int
    packs: int
    size: int
    """The size of all packs and indexes."""
    largest: int
    """The size of the largest pack."""


class PackReport(msgspec.Struct, frozen=True):
    """The number of packs before and after a repack. `size`: the bytes of the packs after it."""

    before: int
    after: int
    size: int


class ListingEntry(msgspec.Struct, frozen=True):
    """A repository in a listing. `refs`: the names of its refs. `problem`: the reason why it could not be read; empty
    if it could."""

    path: str
    vcs: str
    refs: tuple[bytes, ...]
    problem: str = ""


class VerifyReport(msgspec.Struct, frozen=True):
    """The amount of data that a verification has read, and all damage that it found."""

    packs: int
    segments: int
    records: int
    size: int
    problems: tuple[str, ...]
    ghosts: int = 0
    """The number of missing parents that their children mark as absent. They are not damage."""
    lost: int = 0
    """The number of changes that the log lacks although a record or a pack has them (`store.lost`)."""
