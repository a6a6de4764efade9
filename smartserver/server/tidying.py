"""Upkeep after an answer: however many pushes a repository gets meanwhile, at most one tidying of it waits."""

from __future__ import annotations

from smartserver.server.executor import Executor, Lane
from smartserver.server.site import Site
from smartserver.server.work import tidy
from smartserver.store.repository import PackRepository


def tidy_later(site: Site, executor: Executor, repository: PackRepository) -> None:
    """Have a repository that was changed tidied, unless that is to come anyway or is left to whoever asks for it."""
    if not site.tidies or repository in site.due:
        return
    site.due.add(repository)

    def begin() -> None:
        # Before it looks, so that what changes from now on asks again.
        site.due.discard(repository)
        tidy(repository)

    executor.run(begin, lambda _: None, Lane.UPKEEP)
