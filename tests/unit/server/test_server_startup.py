"""server.startup, server.upkeep: repositories are found and tidied, one by one, at a pace, and none is missed."""

from __future__ import annotations

import itertools

import pytest
from builders import MAIN
from dialogs import PATH, Dialog, Lanes, Served, SteppedExecutor, message
from memory_transport import MemoryTransport
from session_calls import set_ref

from smartserver.server import upkeep
from smartserver.server.executor import InlineExecutor, Lane
from smartserver.server.startup import MAX_DEPTH, repositories, tidy_all
from smartserver.server.upkeep import SlowPace, UpkeepQueue
from smartserver.store.index_build import Pace
from smartserver.store.repack import AHEAD
from smartserver.store.repository import PackRepository
from transports.errors import NoSpace


@pytest.fixture
def stocked() -> Served:
    served = Served()
    line = served.history.line(2)
    for path in ("one", "team/two", "team/deep/three"):
        served.push(line, {MAIN: line[1]}, path)
    served.transport.make_directory("team/empty")
    served.transport.make_directory(".hidden")
    served.transport.put("a file", [b"x"])
    return served


def test_repositories_are_found(stocked: Served) -> None:
    assert sorted(repositories(stocked.transport)) == ["one", "team/deep/three", "team/two"]
    assert list(repositories(stocked.transport, path="one")) == ["one"]
    assert list(repositories(stocked.transport.child("one"))) == [""]
    assert list(repositories(stocked.transport, path="nowhere")) == []
    assert list(repositories(stocked.transport, path="a file")) == []
    stocked.site.find("one").repository.delete(bytes(16), 0, "user")
    stocked.push(list(stocked.history.parents), {}, "one/below")
    assert sorted(repositories(stocked.transport, path="one")) == ["one", "one/below"]
    # What a link leads out of the root to is not looked at.
    assert list(repositories(stocked.transport, lambda path: not path.startswith("team"))) == ["one", "one/below"]


def test_the_search_ends() -> None:
    transport = MemoryTransport()
    for depth in range(MAX_DEPTH + 3):
        folders = [f"d{number}" for number in range(depth)]
        for name in ("", "repository", "repository/packs", "repository/incoming"):
            if folders or name:
                transport.make_directory("/".join([*folders, name]) if name else "/".join(folders))
    assert len(list(repositories(transport))) == MAX_DEPTH


def test_what_cannot_be_tidied_is_logged_and_the_rest_is_done(
    stocked: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tidied: list[str] = []

    def collect(repository: PackRepository) -> int:
        tidied.append(repository.path)
        if repository.path == "one":
            raise NoSpace("lock")
        return 0

    monkeypatch.setattr(PackRepository, "collect_garbage_files", collect)
    tidy_all(stocked.site, InlineExecutor())
    assert sorted(tidied) == ["one", "team/deep/three", "team/two"]
    assert [record.message for record in caplog.records] == ["tidying one: no space left to write 'lock'"]


def test_a_server_that_stops_tidies_no_further_repository(stocked: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    tidied: list[str] = []
    executor = SteppedExecutor()

    def collect(repository: PackRepository) -> int:
        tidied.append(repository.path)
        executor.stopping = True
        return 0

    monkeypatch.setattr(PackRepository, "collect_garbage_files", collect)
    tidy_all(stocked.site, executor)
    assert len(tidied) == 1


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
