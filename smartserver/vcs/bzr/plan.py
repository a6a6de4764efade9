"""A push: which revisions are to be sent, and what of this repository they rest on. `export` reads them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Self

from smartserver.errors import shown
from smartserver.records.model import GraphNode, Key, Parent, RevisionId
from smartserver.vcs.base import CannotSend
from smartserver.vcs.bzr.export import BrzExport
from smartserver.vcs.bzr.repository import BrzRepository
from smartserver.vcs.collector import rare_collections

FEW = 64
"""Revisions up to which the writer uses the direct predecessor as base."""


class BrzPlan:
    """The content of a push; see `plan`. One plan belongs to one repository."""

    def __init__(
        self,
        repository: BrzRepository,
        graph: Mapping[RevisionId, tuple[RevisionId, ...]],
        here: Collection[RevisionId],
        excluded: frozenset[Key] = frozenset(),
        *,
        partial: bool = False,
    ) -> None:
        """`here`: the parents outside `graph` that are in the repository.

        `partial`: of these it need not have the texts; those it has not are no delta bases.
        """
        self._partial = partial
        self._repository = repository
        self._parents = graph
        self._here = here
        self._excluded = excluded
        self.graph: Sequence[GraphNode] = [
            GraphNode(revision, tuple([Parent(each, not self._has(each)) for each in parents]))
            for revision, parents in graph.items()
        ]

    @property
    def bulk(self) -> bool:
        """True if it is long enough for the ways of a bulk push."""
        return len(self.graph) > FEW

    def without_bases(self, keys: Collection[Key]) -> Self:
        """The same plan, using none of `keys` as a delta base."""
        excluded = self._excluded | frozenset(keys)
        return type(self)(self._repository, self._parents, self._here, excluded, partial=self._partial)

    def segments(self) -> Iterator[bytes]:
        """Whole segments in the order of `graph`; may be asked for again."""
        if self.graph:
            with self._repository.locked(), rare_collections():
                export = BrzExport(self._repository, self.bulk, self._excluded, partial=self._partial)
                yield from export.segments(self.graph)

    def _has(self, revision: RevisionId) -> bool:
        return revision in self._parents or revision in self._here


def plan(repository: BrzRepository, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> BrzPlan:
    """The plan of a push by which a server that holds `haves` will hold `tips`."""
    repository.check_format()
    tips = list(tips)
    with repository.locked():
        missing = set(tips).difference(repository.parents(tips))
        if missing:
            raise CannotSend(f"cannot push: revision {shown(min(missing))} is not here")
        graph = repository.ancestry(tips, list(haves))
        outside = {parent for parents in graph.values() for parent in parents if parent not in graph}
        return BrzPlan(repository, graph, set(repository.parents(outside)))
