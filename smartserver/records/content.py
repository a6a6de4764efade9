"""What of a repository can be read apart from whole revisions: trees and parts of them, by system."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol

from smartserver.records.model import Key, Record, RevisionId

Read = Callable[[int, Key], Record | None]
"""The record of a kind and key, None where there is none."""

Place = tuple[int, Key]
"""A record's kind and key."""


class Had(Protocol):
    """Trees that a reader has."""

    def add(self, revision: RevisionId) -> None:
        """Take in a revision's, if it has one.

        Raises:
            ValueError: its record cannot be read.
        """

    def shared(self, revision: RevisionId) -> tuple[set[Key], set[Key]]:
        """What they have of a revision's tree: pages, at which `Content.tree` need go no further, and texts of files.

        Raises:
            ValueError: a record is missing or cannot be read.
        """


class Content(Protocol):
    """How the records of one system make up trees."""

    @property
    def described(self) -> Sequence[int]:
        """The kinds of what a revision says of itself; the key is its id."""

    @property
    def text(self) -> int:
        """The kind of files' texts."""

    def tree(
        self,
        read: Read,
        revision: RevisionId,
        paths: Sequence[bytes] | None,
        seen: set[Key],
        also: Collection[bytes] = (),
        bringers: set[RevisionId] | None = None,
    ) -> Iterator[Place]:
        """The records of a revision's tree, or of what lies at some paths and below, and of the folders on the way
        there; files' texts last. A path at which nothing lies adds what shows that.

        `seen`: what whole trees before it had and need not be read again; this one's is added. `also`: what `named`
        gave of other trees; where that is elsewhere in this one, its place is one of the paths. `bringers`: gets, by
        the time the walk ends, the revisions that changed what it led to last, ghosts among them.

        Raises:
            ValueError: a record is missing or cannot be read.
        """

    def named(self, read: Read, revision: RevisionId, paths: Sequence[bytes]) -> set[bytes]:
        """What lies at some paths, by what it keeps when it is moved.

        Raises:
            ValueError: a record is missing or cannot be read.
        """

    def changed(self, read: Read, one: RevisionId, other: RevisionId | None) -> set[Key]:
        """The texts of files that one of two trees has and the other has not; all of one where there is no other.

        Raises:
            ValueError: a record is missing or cannot be read.
        """

    def had(self, read: Read) -> Had:
        """Trees to compare others with; none yet."""

    def bringer(self, key: Key) -> RevisionId:
        """The revision that brought a file's text; it may be a ghost."""

    def versions(self, read: Read, key: Key) -> Iterator[tuple[RevisionId, Key]]:
        """A file's text and the texts it comes from: the revision that brought each, and its key."""
