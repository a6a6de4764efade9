"""`Source`: what a push sends of a local repository."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from smartserver.records.model import Plan, RevisionId
from smartserver.vcs.bzr.repository import BrzRepository

Planning = Callable[[Iterable[RevisionId], Iterable[RevisionId]], Plan]
"""Given the tips that are pushed and what the server is thought to have."""


@dataclass(frozen=True, slots=True)
class Source:
    """A push's source; how it is planned is told."""

    planning: Planning

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Plan:
        """What is sent."""
        return self.planning(tips, haves)


def of_repository(repository: BrzRepository, only: Collection[RevisionId] | None = None) -> Source:
    """What a server lacks of a local repository; `only`: of these revisions, instead of the tips."""

    def planning(tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Plan:
        from smartserver.vcs.bzr.plan import plan  # What a push of nothing new needs not.

        return plan(repository, tips if only is None else only, haves)

    return Source(planning)
