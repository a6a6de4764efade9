"""server.tidying: at most one tidying of a repository waits, and none is missed."""

from __future__ import annotations

import itertools

import pytest
from dialogs import PATH, Served, SteppedExecutor

from smartserver.server import tidying
from smartserver.server.pace import SlowPace
from smartserver.server.tidying import tidy_later
from smartserver.store.index_build import Pace
from smartserver.store.repack import AHEAD
from smartserver.store.repository import PackRepository


def test_one_tidying_of_a_repository_waits(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = SteppedExecutor()
    first, second = served.repository(), PackRepository(served.transport, "other")
    told: list[str] = []

    def tidy(repository: PackRepository, pace: Pace) -> None:
        told.append(repository.path)
        if len(told) == 1:
            tidy_later(served.site, stepped, repository)  # A push that comes while it is tidied.

    monkeypatch.setattr(tidying, "tidy", tidy)
    again = PackRepository(served.transport, PATH)  # As the site has it once it has forgotten the first.
    for repository in (first, again, second, first, second):
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


def test_the_pace_is_left_where_the_server_stops(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or it would wait for the end of a repack three times as long."""
    rests = resting(monkeypatch)
    executor = SteppedExecutor()

    def tidy(repository: PackRepository, pace: Pace) -> None:
        pace()
        executor.stopping = True
        pace()

    monkeypatch.setattr(tidying, "tidy", tidy)
    tidy_later(served.site, executor, served.repository())
    executor.run_all()
    assert len(rests) == 1


@pytest.mark.parametrize("same", [True, False])
def test_the_pace_is_left_where_another_tidying_waits_for_long(
    served: Served, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    """One thread tidies them all: a large one at a slow pace would let the packs of another become too many."""
    rests = resting(monkeypatch)
    executor = SteppedExecutor()
    one = served.repository()
    other = one if same else PackRepository(served.transport, "other")
    rested: list[int] = []

    def tidy(repository: PackRepository, pace: Pace) -> None:
        pace()
        for _ in range(AHEAD + 1 if not rested else 0):
            tidy_later(served.site, executor, other)
            pace()
        rested.append(len(rests))

    monkeypatch.setattr(tidying, "tidy", tidy)
    tidy_later(served.site, executor, one)
    executor.run_all()
    # At the beginning, after each push but the last two; and when its turn came, nothing waited.
    assert rested == [AHEAD, AHEAD + 1]


def resting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What a slow pace rests, which has always something to rest from."""
    rests: list[float] = []
    ticks = itertools.count()
    monkeypatch.setattr(
        tidying, "SlowPace", lambda hurried: SlowPace(hurried, lambda: float(next(ticks)), rests.append)
    )
    return rests
