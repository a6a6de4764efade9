"""Upkeep after an answer: however many pushes a repository gets meanwhile, at most one tidying of it waits."""

from __future__ import annotations

from smartserver.server.executor import Executor, Lane
from smartserver.server.pace import SlowPace
from smartserver.server.site import Site
from smartserver.server.work import tidy
from smartserver.store.repository import PackRepository


def tidy_later(site: Site, executor: Executor, repository: PackRepository) -> None:
    """Have a repository that was changed tidied, unless that is to come anyway or is left to whoever asks for it.

    It goes at a slow pace until another waits for too long, or the server stops.
    """
    if not site.tidies or not site.due.add(repository):
        return

    def begin() -> None:
        # Before it looks, so that what changes from now on asks again.
        site.due.take(repository)
        tidy(repository, SlowPace(lambda: executor.stopping or site.due.pressing))

    executor.run(begin, lambda _: None, Lane.UPKEEP)
