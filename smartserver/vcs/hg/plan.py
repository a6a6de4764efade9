"""A push: which changesets are to be sent, and what of this repository they rest on. `export` reads them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Self

from smartserver.errors import shown
from smartserver.records.model import GraphNode, Key, Parent, RevisionId
from smartserver.vcs.base import CannotSend
from smartserver.vcs.collector import rare_collections
from smartserver.vcs.hg.export import HgExport
from smartserver.vcs.hg.kinds import Node
from smartserver.vcs.hg.repository import HgRepository

FEW = 64
"""Changesets up to which the writer uses the direct predecessor as base."""


class HgPlan:
    """The content of a push; see `plan`. One plan belongs to one repository."""

    def __init__(self, repository: HgRepository, nodes: Sequence[Node], excluded: frozenset[Key] = frozenset()) -> None:
        """`nodes`: the changesets, parents first."""
        self._repository = repository
        self._nodes = nodes
        self._excluded = excluded
        self.graph: Sequence[GraphNode] = [
            GraphNode(node, tuple([Parent(each) for each in repository.parents(node)])) for node in nodes
        ]

    @property
    def bulk(self) -> bool:
        """True if it is long enough for the ways of a bulk push."""
        return len(self.graph) > FEW

    def without_bases(self, keys: Collection[Key]) -> Self:
        """The same plan, using none of `keys` as a delta base."""
        return type(self)(self._repository, self._nodes, self._excluded | frozenset(keys))

    def segments(self) -> Iterator[bytes]:
        """Whole segments in the order of `graph`; may be asked for again."""
        if self.graph:
            with rare_collections():
                yield from HgExport(self._repository, self.bulk, self._excluded).segments(self.graph)


def plan(repository: HgRepository, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> HgPlan:
    """The plan of a push by which a server that holds `haves` will hold `tips`."""
    repository.check_format()
    tips = list(tips)
    for tip in tips:
        if not repository.has(tip):
            raise CannotSend(f"cannot push: changeset {shown(tip)} is not here")
    return HgPlan(repository, repository.missing(tips, haves))
