"""What the rest of the program sees of a repository: values, no I/O.

A verb gets a `RepositoryTransaction` (`store.transaction`): a snapshot of the root, the announced graph and the changes
of the calls before it. It decides there; the repository makes the changes durable in one swap, or plans again when
another writer was first.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from smartserver.records.model import Key, RevisionId


class What(enum.StrEnum):
    """What a pull brings."""

    REFS = "refs"
    """The refs, and nothing else."""
    HISTORY = "history"
    """Whole revisions, as they lie."""
    REVISIONS = "revisions"
    """What revisions say of themselves, without their content."""
    TREE = "tree"
    """Trees, or parts of them, without their history."""


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


class Trees(msgspec.Struct, frozen=True):
    """Which trees, and what of them."""

    of: tuple[RevisionId, ...] = ()
    each: bool = False
    """Besides, those of the revisions that are sent and of their first parents: so `log` can say what changed."""
    paths: tuple[bytes, ...] | None = None
    """With all below them, and the folders they lie in; None: everything."""
    texts: bool = True
    """Whether the files' texts come too."""
    versions: bool = False
    """Whether the earlier texts of those files come too, and the revisions that brought them."""
    changed: bool = False
    """Whether only texts come in which a tree differs from the next of `of`, or with `each` from its first parent's."""
    had: tuple[RevisionId, ...] = ()
    """Trees whose pages and texts the reader has: nothing of them is sent but what says which they are."""
    files: tuple[Key, ...] = ()
    """Texts that come besides, where they are stored, and what the revisions that brought them say of themselves."""
    bringers: bool = False
    """Whether what the revisions say of themselves comes that changed each entry last, folders and links included."""


class ContentPlan(msgspec.Struct, frozen=True):
    """What an answer is put together from that is not whole revisions."""

    revisions: tuple[int, ...] = ()
    """Global ordinals of those whose own records are sent, in this order."""
    bare: bool = False
    """Only ids and parents are sent of them."""
    merges: bool = False
    """But of those with several parents everything."""
    ends: int = 0
    """And of so many that come first, and so many that come last."""
    trees: Trees = Trees()

    def __bool__(self) -> bool:
        """Whether anything is to be sent."""
        return bool(self.revisions or self.trees.of or self.trees.had or self.trees.files)


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
