"""server.upkeep: at most one tidying of a repository waits, and none is missed; work nobody waits for rests longer than
it worked, and not for each little piece; a repository presses once it was changed too often."""

from __future__ import annotations

import itertools

import pytest
from dialogs import PATH, Dialog, Lanes, Served, SteppedExecutor, message
from memory_transport import MemoryTransport
from session_calls import set_ref

from smartserver.server import upkeep
from smartserver.server.executor import Lane
from smartserver.server.upkeep import SlowPace, UpkeepQueue
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
            served.site.upkeep.tidy_later(stepped, repository)  # A push that comes while it is tidied.

    monkeypatch.setattr(upkeep, "tidy", tidy)
    again = PackRepository(served.transport, PATH)  # As the site has it once it has forgotten the first.
    for repository in (first, again, second, first, second):
        served.site.upkeep.tidy_later(stepped, repository)
    assert len(stepped.waiting) == 2
    stepped.run_all()
    assert told == [PATH, "other", PATH]
    served.site.upkeep.tidy_later(stepped, first)
    stepped.run_all()
    assert told == [PATH, "other", PATH, PATH]


@pytest.mark.parametrize("tidies", [True, False])
def test_of_a_store_behind_a_link_the_log_alone_is_tidied(
    served: Served, line: list[bytes], tidies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    for name in ("tidy", "save_log"):
        monkeypatch.setattr(PackRepository, name, lambda *_, name=name: called.append(name))
    executor = Lanes()
    served.site.tidies = tidies
    dialog = Dialog(served.site, executor=executor)
    dialog.begin(message(set_ref(line[2], b"refs/heads/other")))
    executor.run_all()
    assert Lane.UPKEEP in executor.lanes
    assert called == ["tidy" if tidies else "save_log"]


def test_the_pace_is_left_where_the_server_stops(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or it would wait for the end of a repack three times as long."""
    rests = resting(monkeypatch)
    executor = SteppedExecutor()

    def tidy(repository: PackRepository, pace: Pace) -> None:
        pace()
        executor.stopping = True
        pace()

    monkeypatch.setattr(PackRepository, "tidy", tidy)
    served.site.upkeep.tidy_later(executor, served.repository())
    executor.run_all()
    assert len(rests) == 1


def resting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The rests of a slow pace, which has always something to rest from."""
    rests: list[float] = []
    ticks = itertools.count()
    monkeypatch.setattr(upkeep, "SlowPace", lambda hurried: SlowPace(hurried, lambda: float(next(ticks)), rests.append))
    return rests


def test_a_repository_presses_until_it_is_taken() -> None:
    storage, due = MemoryTransport(), UpkeepQueue()
    one, again, other = (PackRepository(storage, path) for path in ("one", "one", "other"))
    assert [due.add(each) for each in (one, again, other)] == [True, False, True]
    pressing = []
    for _ in range(AHEAD):
        pressing.append(due.is_pressing)
        due.add(one)
    assert pressing == [*[False] * (AHEAD - 2), True, True]
    due.take(other)
    assert due.is_pressing
    due.take(again)
    assert not due.is_pressing
    assert due.add(one)
