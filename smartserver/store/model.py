"""What the rest of the program sees of a repository: interfaces, no I/O.

A verb gets a `Transaction`: a snapshot of the root, the announced graph and the changes of the calls before it. It
decides there; the repository makes the changes durable in one swap, or plans again when another writer was first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from smartserver.records.model import Announced, Kind, Piece, RefValue, RevisionId


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
    """Whether they travel as one bulk stream."""

    def __bool__(self) -> bool:
        """Whether anything is to be sent."""
        return self.segments > 0


class ContentPlan(msgspec.Struct, frozen=True):
    """What an answer is put together from that is not whole revisions; to be read once."""

    pieces: Iterator[Piece] | None

    def __bool__(self) -> bool:
        """Whether anything is to be sent."""
        return self.pieces is not None


class Transaction(Protocol):
    """One request's view of a repository, and the changes it asks for. Pure: no method does I/O but graph reads."""

    @property
    def path(self) -> str:
        """The path the client named."""

    @property
    def exists(self) -> bool:
        """Whether there is a repository (a `create` before counts)."""

    @property
    def vcs(self) -> str:
        """The name of its version-control system.

        Raises:
            NoSuchRepository: there is none.
        """

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of record it holds.

        Raises:
            NoSuchRepository: there is none.
        """

    @property
    def settings(self) -> Mapping[str, bytes]:
        """Small settings, such as the name of the main branch.

        Raises:
            NoSuchRepository: there is none.
        """

    @property
    def announced(self) -> Sequence[Announced]:
        """The revisions this request brings, parents first."""

    def new_revisions(self) -> int:
        """How many of the announced revisions are not stored."""

    def refs(self) -> Mapping[bytes, RefValue]:
        """All refs with the changes so far.

        Raises:
            NoSuchRepository: there is none.
        """

    def ref(self, name: bytes) -> RefValue | None:
        """One ref, or None.

        Raises:
            NoSuchRepository: there is none.
        """

    def nested(self, name: bytes) -> bytes | None:
        """A ref that cannot be there with `name`: a client that keeps refs in files has no place for `a` and `a/b`."""

    def has_revision(self, revision: RevisionId) -> bool:
        """Whether it is stored or announced."""

    def is_stored(self, revision: RevisionId) -> bool:
        """Whether it is stored."""

    def is_ancestor(self, ancestor: RevisionId, revision: RevisionId) -> bool:
        """Whether `revision` is or descends from `ancestor`, over stored and announced edges that are not cut.

        Raises:
            MissingRevision: one of them is neither stored nor announced.
        """

    def leads_forward(self, name: bytes, old: RevisionId, new: RevisionId) -> bool:
        """Whether a ref moves forward from `old` to `new`: `new` descends from `old` or, where `old` is a label (an
        annotated tag), from its target.

        Raises:
            MissingRevision: one of them is neither stored nor announced.
        """

    def create(self, vcs: str, kinds: Sequence[Kind], settings: Mapping[str, bytes]) -> bool:
        """Make the repository with this request; False where one of the same `vcs` exists.

        Raises:
            Unsupported: a kind's check is not one this release knows.
            WrongVcs: one of another `vcs` exists.
            InvalidName: a setting names a ref that cannot be one.
        """

    def set_ref(self, name: bytes, value: RefValue | None) -> None:
        """Change, make or (None) remove a ref; the rule was checked by the caller.

        Raises:
            NoSuchRepository: there is none.
            InvalidName: not 1 to 1,024 bytes, NUL in it, or not a name the repository's VCS allows.
            MissingRevision: a tip is neither stored nor announced.
            WrongTip: a tip is of a type that this ref cannot point at.
        """

    def map_kind(self, name: str) -> str | None:
        """`ids` or `opaque`, as a map was declared when it got its first entry; None where it never had one.

        Raises:
            NoSuchRepository: there is none.
        """

    def map(self, name: str) -> Mapping[bytes, bytes]:
        """The entries of a map with the changes so far; what belongs to a ref has its name and NUL before its key.

        Raises:
            NoSuchRepository: there is none.
        """

    def entry(self, name: str, key: bytes) -> bytes | None:
        """One entry of a map with the changes so far, or None.

        Raises:
            NoSuchRepository: there is none.
        """

    def set_map(self, name: str, kind: str, key: bytes, value: bytes | None) -> None:
        """Change, make or (None) remove an entry of a map; the caller decided that it may be.

        Raises:
            NoSuchRepository: there is none.
            WrongMapKind: the map was declared otherwise.
            InvalidName: the map's name or the key cannot be one.
        """

    def remove_entries(self, of: bytes) -> None:
        """Remove what belongs to a ref from every map.

        Raises:
            NoSuchRepository: there is none.
        """

    def remember(self) -> None:
        """Have the log say that this request was answered, even if nothing changes: a repeat of it, carried out after
        somebody else's change, would undo that."""

    def check_parents(self) -> None:
        """Check that each announced revision's parents are stored, announced before it, or marked absent.

        Raises:
            MissingParents: some are not.
        """

    def known_heads(self) -> list[RevisionId]:
        """Heads of the announced revisions that are stored already."""

    def followed(self, candidates: Sequence[RevisionId], tips: Sequence[RevisionId]) -> list[RevisionId]:
        """Those of `candidates` that `tips` reach, and labels (annotated tags) on what they reach.

        Ids that are not stored are ignored.
        """

    def plan_pull(
        self,
        wants: Sequence[RevisionId],
        haves: Sequence[RevisionId],
        absent: Sequence[RevisionId] = (),
    ) -> PullPlan:
        """The segments reachable from `wants` and not from `haves`.

        `absent`: ids the puller lacks although it has their children; they and what only they reach do not count as
        had.

        Raises:
            NoSuchRepository: there is none.
            MissingRevision: a want is not stored.
        """

    def stats(self) -> RepositoryStats:
        """What the stored repository consists of.

        Raises:
            NoSuchRepository: there is none.
        """

    def set_setting(self, name: str, value: bytes | None) -> None:
        """Change, make or (None) remove a setting.

        Raises:
            NoSuchRepository: there is none.
            InvalidName: it names a ref that cannot be one.
        """

    def delete(self) -> None:
        """Put a tombstone in the repository's place; nothing else is asked for in the request.

        Raises:
            NoSuchRepository: there is none.
        """

    def plan_read(
        self,
        selector: bytes,
        wants: Sequence[RevisionId],
        haves: Sequence[RevisionId] = (),
        absent: Sequence[RevisionId] = (),
        ref: bytes = b"",
        inner: str = "",
    ) -> tuple[PullPlan | ContentPlan, bytes]:
        """What a selector asks for, and what the system says of it. Whole revisions travel as a bulk stream, too.

        `ref`: the first that was named. `inner`: what of the path leads into a branch.

        Raises:
            LimitExceeded, MissingRevision, NoSuchPart, Unsupported: as `records.system.System.read`.
            NoSuchRepository: there is none, or this request makes it.
        """


class Seen(NamedTuple):
    """The newest root a client has seen. `mark`: of the newest entry of the log at that version; a version alone does
    not tell a root, because a backup that was put back goes on from an older one."""

    incarnation: bytes
    version: int
    mark: int


class Changes(msgspec.Struct, frozen=True):
    """What of a root changed after version `since`; everything where `since` is None."""

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
    """As in `Seen`."""


class RepositoryStats(msgspec.Struct, frozen=True):
    """What a repository consists of; sizes in bytes."""

    format: str
    features: list[str]
    vcs: str
    version: int
    """Changes since it was made."""
    refs: int
    entries: int
    """Of all its maps."""
    revisions: int
    records: int
    packs: int
    size: int
    """Of packs and indexes."""
    largest: int
    """Of one pack."""


class PackReport(msgspec.Struct, frozen=True):
    """How many packs there were and are, and their bytes."""

    before: int
    after: int
    size: int


class Listed(msgspec.Struct, frozen=True):
    """A repository as a listing says it; `problem`: why no more can be said of it."""

    path: str
    vcs: str
    refs: tuple[bytes, ...]
    problem: str = ""


class VerifyReport(msgspec.Struct, frozen=True):
    """What a verification read, and every damage it found."""

    packs: int
    segments: int
    records: int
    size: int
    problems: tuple[str, ...]
    ghosts: int = 0
    """Parents that are stored nowhere, of which those who pushed have said that they lack them: no damage."""
    lost: int = 0
    """Changes that are written down and that the root does not know; those that surely were made are problems too."""
