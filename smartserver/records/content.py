"""The view that a system has of a repository it answers `Repository.read` from, and its answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from smartserver.errors import CorruptRecord
from smartserver.records.hunks import Buffer
from smartserver.records.model import Key, Piece, Record, RefValue, RevisionId, Tip


class Text(NamedTuple):
    """The text of a record, in parts where it is large."""

    meta: bytes
    """The meta of the record."""
    length: int
    parts: Iterable[Buffer]
    """Asked for once; raises CorruptFile where the text is damaged, before its end."""
    check: bytes = b""
    """The check of the record, where the text is large and the kind has one."""


def whole(text: bytes) -> Text:
    """One that is no record's."""
    return Text(b"", len(text), (text,))


class RepositoryView(Protocol):
    """A repository at one moment. Revisions have ordinals; a revision's is higher than those of its parents.

    Besides what is said here, any method may raise what ends the request, or says that the repository is damaged.
    """

    def charge(self, steps: int, size: int = 0) -> None:
        """Charge the request for work beside what it is charged for here: steps, and bytes of texts that are gone
        through again. A loop charges each entry, page or record that it looks at, before it keeps anything of it.

        Raises:
            Cancelled: nobody waits for the answer any more.
            LimitExceeded: it is too much.
        """

    def refs(self) -> Mapping[bytes, RefValue]:
        """All refs. The caller charges a walk over them."""

    def map(self, name: str) -> Mapping[bytes, bytes]:
        """The entries of a map; the key of one of a ref begins with its name and NUL. The caller charges a walk."""

    def changed(self, name: str, known: tuple[bytes, int, int]) -> Collection[bytes] | None:
        """The keys of a map's entries that changed since an incarnation, version and mark; None if that is unknown."""

    def setting(self, name: str) -> bytes | None:
        """A setting of the repository, None where it is not set."""

    def ordinal(self, revision: RevisionId) -> int | None:
        """The ordinal of a revision; None where it is not stored."""

    def revision(self, ordinal: int) -> RevisionId:
        """The id of a revision."""

    def parents(self, ordinal: int) -> Sequence[int]:
        """The parents of a revision that are stored."""

    def first_parent(self, ordinal: int) -> int | None:
        """The first parent of a revision; None where it has none, or that is not stored."""

    def reached(self, wants: Sequence[int], haves: Sequence[int], absent: Sequence[int] = ()) -> Sequence[int]:
        """The ordinals that `wants` reach and `haves` do not, ascending. `absent`: revisions that the reader lacks."""

    def record(self, kind: int, key: Key) -> Record | None:
        """The record of a kind and key; None where there is none."""

    def text(self, kind: int, key: Key) -> Text | None:
        """The text of that; None where there is none."""

    def prefetch(self, names: Iterable[tuple[int, Key]]) -> None:
        """Read records that are asked for next together, where the store is behind a link. They are few."""

    def length(self, kind: int, key: Key) -> int | None:
        """The bytes of its text, which is not read; None where there is none."""


class MapReader(Protocol):
    """A repository with the changes that a request has made so far, as a system decides on refs and entries of maps."""

    def charge(self, steps: int) -> None:
        """Charge the request for a walk over entries of a map."""

    @property
    def settings(self) -> Mapping[str, bytes]:
        """All settings."""

    def map(self, name: str) -> Mapping[bytes, bytes]:
        """The entries of a map."""

    def with_entries(self, name: str, firsts: Sequence[bytes]) -> Sequence[bytes]:
        """The members of `firsts` that a key of a map begins with."""

    def has_revision(self, revision: RevisionId) -> bool:
        """True if a revision is stored, or comes with the request."""

    def is_ancestor(self, ancestor: RevisionId, revision: RevisionId) -> bool:
        """True if `revision` is `ancestor` or descends from it; both are stored or come."""

    def beyond(self, revisions: Sequence[RevisionId], others: Sequence[RevisionId]) -> Sequence[RevisionId]:
        """The members of `revisions` that are neither among `others` nor ancestors of one. Ids of `others` that are
        neither stored nor come are ignored."""


class TipReader(Protocol):
    """A repository with the revisions that a request brought, as a system proves the attributes of tips."""

    def proved(self) -> Iterator[Tip]:
        """The tips whose attributes were proved before."""

    def ordinal(self, revision: RevisionId) -> int | None:
        """The ordinal of a revision, higher than those of its parents; None where it is not here."""

    def first_parent(self, ordinal: int) -> int | None:
        """The first parent of a revision; None where it has none, or that is not here."""

    def facts(self, revisions: Sequence[RevisionId]) -> Sequence[bytes]:
        """The `System.tip_fact` of each revision, read together; empty of one that is not here."""


class ReadScope(NamedTuple):
    """The wants, the haves and the ref that a reader names beside the selector."""

    wants: Sequence[RevisionId] = ()
    haves: Sequence[RevisionId] = ()
    ref: bytes = b""
    """The first ref that was named."""


class ReadPlan(NamedTuple):
    """The answer of a system."""

    said: bytes = b""
    """Goes into the result as it is: the client's side of the system reads it."""
    heads: Sequence[RevisionId] | None = None
    """Whole revisions are sent: what these reach and the haves do not. None: none are."""
    pieces: Iterator[Piece] | None = None
    """These records, or a graph, are sent instead."""
    items: Iterator[Buffer] | None = None
    """A content body (`records.browse`) is sent instead."""


@contextmanager
def damage_of(revision: RevisionId) -> Iterator[None]:
    """Take a ValueError for damage of this revision."""
    try:
        yield
    except ValueError as error:
        raise CorruptRecord(revision, revision, f"it cannot be read: {error}") from error


def as_graph(ordinals: Iterable[int]) -> Iterator[Piece]:
    """The pieces of a `ReadPlan` that sends the ids and parents of these revisions alone."""
    return ((ordinal, ()) for ordinal in ordinals)
