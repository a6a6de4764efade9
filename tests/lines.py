"""A history as a system proves the attributes of tips in it (`records.content.TipReader`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from smartserver.records.model import RevisionId, Tip


class Lines:
    """Revisions by their first parents, children after parents; it counts what is asked."""

    def __init__(
        self,
        parents: Mapping[RevisionId, RevisionId | None] = {},
        known: Iterable[Tip] = (),
        facts: Mapping[RevisionId, bytes] = {},
    ) -> None:
        """A parent that is none of the revisions is a ghost. `known`: tips that were proved."""
        self._revisions = list(parents)
        self._parents = parents
        self._known = known
        self._facts = facts
        self.steps = 0

    def proved(self) -> Iterator[Tip]:
        return iter(self._known)

    def ordinal(self, revision: RevisionId) -> int | None:
        return self._revisions.index(revision) if revision in self._parents else None

    def first_parent(self, ordinal: int) -> int | None:
        self.steps += 1
        parent = self._parents[self._revisions[ordinal]]
        return None if parent is None else self.ordinal(parent)

    def facts(self, revisions: Sequence[RevisionId]) -> Sequence[bytes]:
        return [self._facts.get(revision, b"") for revision in revisions]
