"""server.tidying: at most one tidying of a repository waits, and none is missed."""

from __future__ import annotations

import pytest
from dialogs import PATH, Served, SteppedExecutor

from smartserver.server import tidying
from smartserver.server.tidying import tidy_later
from smartserver.store.repository import PackRepository


def test_one_tidying_of_a_repository_waits(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = SteppedExecutor()
    first, second = served.repository(), PackRepository(served.transport, "other")
    told: list[str] = []

    def tidy(repository: PackRepository) -> None:
        told.append(repository.path)
        if len(told) == 1:
            tidy_later(served.site, stepped, repository)  # A push that comes while it is tidied.

    monkeypatch.setattr(tidying, "tidy", tidy)
    for repository in (first, first, second, first, second):
        tidy_later(served.site, stepped, repository)
    assert len(stepped.waiting) == 2
    stepped.run_all()
    assert told == [PATH, "other", PATH]
    tidy_later(served.site, stepped, first)
    stepped.run_all()
    assert told == [PATH, "other", PATH, PATH]


def test_a_store_behind_a_link_is_left_alone(served: Served) -> None:
    stepped = SteppedExecutor()
    served.site.tidies = False
    tidy_later(served.site, stepped, served.repository())
    assert not stepped.waiting
