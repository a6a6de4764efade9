"""The views of a repository that a system reads, and the system's answer to `Repository.read`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from smartserver.errors import CorruptRecord
from smartserver.records.hunks import Buffer
from smartserver.records.model import Key, Piece, Record, RefValue, RevisionId, Tip


class Text(NamedTuple):
    """The text of a record, in parts if it is large."""

    meta: bytes
    """The meta of the record."""
    length: int
    parts: Iterable[Buffer]
    """The parts of the text, to be read once; raises CorruptFile before the end if the text is damaged."""
    check: bytes = b""
    """The check in the record's header; empty unless the text is large and the kind has a check."""


def whole(text: bytes) -> Text:
    """Return the `Text` of bytes that are not the text of a record."""
    return Text(b"", len(text), (text,))


class RepositoryView(Protocol):
    """A repository at one moment. Revisions have ordinals; a revision's ordinal is higher than those of its parents.

    Besides the errors named here, any method may raise an error that ends the request or reports damage.
    """

    def charge(self, steps: int, size: int = 0) -> None:
        """Charge the request for the caller's own work: steps, and bytes of texts that are read again. A loop must
        charge each entry, page or record before it stores any part of it.

        Raises:
            Cancelled: the client has disconnected.
            LimitExceeded: the work of the request exceeds its limits.
        """

    def refs(self) -> Mapping[bytes, RefValue]:
        """Return all refs. The caller must charge a loop over them."""

    def map(self, name: str) -> Mapping[bytes, bytes]:
        """Return the entries of a map. If an entry belongs to a ref, its key begins with the ref's name and NUL. The
        caller must charge a loop over the entries."""

    def changed(self, name: str, known: tuple[bytes, int, int]) -> Collection[bytes] | None:
        """Return the keys of the entries of a map that changed after `known`, an incarnation, version and mark. Return
        None if the changes since then are unknown."""

    def setting(self, name: str) -> bytes | None:
        """Return a setting of the repository; None if it is not set."""

    def ordinal(self, revision: RevisionId) -> int | None:
        """Return the ordinal of a revision; None if it is not stored."""

    def revision(self, ordinal: int) -> RevisionId:
        """Return the id of a revision."""

    def parents(self, ordinal: int) -> Sequence[int]:
        """Return the ordinals of a revision's stored parents."""

    def first_parent(self, ordinal: int) -> int | None:
        """Return the ordinal of a revision's first parent; None if it has no parent, or its first parent is not
        stored."""

    def reached(self, wants: Sequence[int], haves: Sequence[int], absent: Sequence[int] = ()) -> Sequence[int]:
        """Return the ordinals that `wants` reach and `haves` do not, ascending. `absent`: revisions that the client
        lacks although it has their children."""

    def record(self, kind: int, key: Key) -> Record | None:
        """Return the record of a kind and key; None if it is not stored."""

    def text(self, kind: int, key: Key) -> Text | None:
        """Return the text of a record; None if it is not stored."""

    def prefetch(self, names: Iterable[tuple[int, Key]]) -> None:
        """Read a few records together, in one round trip, that the caller will need next. In a local store, do
        nothing."""

    def length(self, kind: int, key: Key) -> int | None:
        """Return the number of bytes of a record's text without reading it; None if the record is not stored."""


class MapReader(Protocol):
    """A repository with the changes of a request so far, from which a system decides on refs and entries of maps."""

    def charge(self, steps: int) -> None:
        """Charge the request for a walk over entries of a map."""

    @property
    def settings(self) -> Mapping[str, bytes]:
        """All settings."""

    def map(self, name: str) -> Mapping[bytes, bytes]:
        """Return the entries of a map."""

    def with_entries(self, name: str, firsts: Sequence[bytes]) -> Sequence[bytes]:
        """Return each of `firsts` that is a prefix of some key in a map."""

    def has_revision(self, revision: RevisionId) -> bool:
        """Tell whether a revision is stored or announced by the request."""

    def is_ancestor(self, ancestor: RevisionId, revision: RevisionId) -> bool:
        """Tell whether `revision` is or descends from `ancestor`; both are stored or announced."""

    def beyond(self, revisions: Sequence[RevisionId], others: Sequence[RevisionId]) -> Sequence[RevisionId]:
        """Return the `revisions` that are neither in `others` nor ancestors of a revision in it. Unknown ids in
        `others` are ignored."""


class TipReader(Protocol):
    """A repository together with the revisions of a request, from which a system proves the attributes of tips."""

    def proved(self) -> Iterator[Tip]:
        """Return the tips whose attributes were proved before."""

    def ordinal(self, revision: RevisionId) -> int | None:
        """Return the ordinal of a revision, which is higher than those of its parents. Return None if the revision is
        neither stored nor announced."""

    def first_parent(self, ordinal: int) -> int | None:
        """Return the ordinal of a revision's first parent; None if it has no parent, or its first parent is missing."""

    def facts(self, revisions: Sequence[RevisionId]) -> Sequence[bytes]:
        """Return the `System.tip_fact` of each revision, read together; empty for an unknown revision."""


class ReadScope(NamedTuple):
    """The wants, the haves and the ref that a client sends in addition to the selector."""

    wants: Sequence[RevisionId] = ()
    haves: Sequence[RevisionId] = ()
    ref: bytes = b""
    """The first ref that the request names; empty if it names none."""


class ReadPlan(NamedTuple):
    """The answer of a system: a message, and at most one of `heads`, `pieces` and `items` for the body."""

    said: bytes = b""
    """The message of the result, which the server passes unchanged to the client's code for the system."""
    heads: Sequence[RevisionId] | None = None
    """The heads for a body of whole revisions. The body has the revisions that they reach and the haves do not."""
    pieces: Iterator[Piece] | None = None
    """The pieces for a body of single records."""
    items: Iterator[Buffer] | None = None
    """The items for a content body (`records.browse`)."""


@contextmanager
def damage_of(revision: RevisionId) -> Iterator[None]:
    """Turn a ValueError in the block into a CorruptRecord of this revision."""
    try:
        yield
    except ValueError as error:
        raise CorruptRecord(revision, revision, f"it cannot be read: {error}") from error


def as_graph(ordinals: Iterable[int]) -> Iterator[Piece]:
    """Return the pieces of a `ReadPlan` that sends only the ids and parents of revisions."""
    return ((ordinal, ()) for ordinal in ordinals)
