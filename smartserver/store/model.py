"""The values of a repository that the rest of the program sees, without I/O.

A verb gets a `Transaction` (`store.transaction`): a snapshot of the repository, the announced graph and the changes
of the calls before it. It decides there; the repository makes the changes durable in one record, or plans again when
another writer was first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from smartserver.records.model import Piece

INCOMPLETE = "incomplete"
"""The setting of a repository into which a copy takes more requests than have come."""


class PullPlan(msgspec.Struct, frozen=True):
    """Which segments answer a pull, in arrival order (parents first)."""

    ranges: tuple[tuple[int, int], ...]
    """Half-open ranges of global ordinals."""
    segments: int
    size: int
    """Bytes of all those segments."""
    common: tuple[bool, ...]
    """For each have: is it a revision here."""
    bulk: bool = False
    """True if they travel as one bulk stream."""
    expanded: bool = False
    """True if that may have less of them compressed (`store.bulk`)."""

    def __bool__(self) -> bool:
        """True if anything is to be sent."""
        return self.segments > 0


class ContentPlan(msgspec.Struct, frozen=True):
    """The source of an answer that is not whole revisions; to be read once."""

    pieces: Iterator[Piece] | None
    """The records, or the graph, that it is put together from."""
    items: Iterator[bytes | memoryview] | None = None
    """The items of a content body (`records.browse`), instead."""

    def __bool__(self) -> bool:
        """True if anything is to be sent."""
        return self.pieces is not None or self.items is not None


class KnownVersion(NamedTuple):
    """The newest version a client has seen. `mark`: of the newest entry at that version; a version alone does not tell
    a state, because a backup that was put back goes on from an older one."""

    incarnation: bytes
    version: int
    mark: int


class Changes(msgspec.Struct, frozen=True):
    """The changes of a repository after version `since`; everything if `since` is None."""

    incarnation: bytes
    version: int
    since: int | None
    refs: Mapping[bytes, bytes | None]
    """The values as they lie in msgpack (`records.model.encode_ref`), which is how they travel."""
    maps: Mapping[str, Mapping[bytes, bytes | None]]
    vcs: str
    settings: Mapping[str, bytes]
    """`vcs` and `settings` are empty where they did not change after `since`."""
    mark: int = 0
    """The mark of `version`, as in `KnownVersion`."""


class RepositoryStats(msgspec.Struct, frozen=True):
    """The numbers and sizes, in bytes, of a repository."""

    format: str
    features: list[str]
    vcs: str
    version: int
    """Changes since it was made."""
    refs: int
    entries: int
    """The entries of all its maps."""
    revisions: int
    records: int
    packs: int
    size: int
    """The bytes of packs and indexes."""
    largest: int
    """The bytes of the largest pack."""


class PackReport(msgspec.Struct, frozen=True):
    """The number of packs before and after a repack, and their bytes."""

    before: int
    after: int
    size: int


class ListingEntry(msgspec.Struct, frozen=True):
    """A repository as a listing says it; `problem`: why no more can be said of it."""

    path: str
    vcs: str
    refs: tuple[bytes, ...]
    problem: str = ""


class VerifyReport(msgspec.Struct, frozen=True):
    """The extent of a verification, and every damage it found."""

    packs: int
    segments: int
    records: int
    size: int
    problems: tuple[str, ...]
    ghosts: int = 0
    """Parents that are stored nowhere, of which those who pushed have said that they lack them: no damage."""
    lost: int = 0
    """Changes that are written down and that the log does not have (`store.lost`)."""
