"""store.commit.Group, store.log.Turns: changes that wait at once are one record, and processes take turns."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from builders import Clock
from log_builders import begin_log, contents, judge, request
from memory_transport import MemoryTransport

from smartserver.errors import OutcomeUnknown
from smartserver.store import commit, log
from smartserver.store.commit import Group
from smartserver.store.log import Log, Turns
from smartserver.store.log_view import Head
from smartserver.store.record import Entry
from smartserver.store.state import State
from transports.base import Step
from transports.decorators.passing import PassingTransport
from transports.errors import TransportFailed
from transports.steps import GetStat, Publish, SyncDirectory


class Sleeping(Clock):
    """Seconds that pass when it is told, or when somebody sleeps."""

    def __init__(self) -> None:
        super().__init__(5.0)
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def late(clock: Sleeping, needed: float) -> Turns:
    """The turns of a process that was late, needed that many seconds, and has just published."""
    found = Turns(clock, clock.sleep)
    found.retried(needed)
    found.published()
    return found


def test_a_process_that_was_never_late_does_not_wait() -> None:
    clock = Sleeping()
    alone = Turns(clock, clock.sleep)
    for _ in range(3):
        alone.published()
        assert not alone.wait()
    assert clock.slept == []


@pytest.mark.parametrize(("needed", "since", "slept"), [(0.25, 0.0, 0.25), (0.25, 0.125, 0.125), (9.0, 0.0, 1.0)])
def test_it_waits_as_long_as_it_needed(needed: float, since: float, slept: float) -> None:
    clock = Sleeping()
    found = late(clock, needed)
    clock.now += since
    assert found.wait()
    assert clock.slept == [slept]


@pytest.mark.parametrize("since", [0.25, log.REMEMBERED + 1])
def test_it_does_not_wait_when_that_is_over(since: float) -> None:
    clock = Sleeping()
    found = late(clock, 0.25)
    clock.now += since
    assert not found.wait()


class Slow(PassingTransport):
    """A store of which each trip takes a second."""

    def __init__(self, inner: MemoryTransport, clock: Sleeping) -> None:
        super().__init__(inner)
        self.clock = clock

    def perform(self, steps: Sequence[Step]) -> None:
        self.clock.now += 1.0
        self.inner.perform(steps)


def test_what_a_lost_race_takes_is_measured_at_the_log() -> None:
    clock, store = Sleeping(), MemoryTransport()
    begin_log(store)
    names = itertools.count()
    own = Log(Slow(store, clock), "r", lambda size: next(names).to_bytes(size, "big"), clock)
    own.turns = Turns(clock, clock.sleep)
    other = Log(store, "r", lambda size: (1 << 32 | next(names)).to_bytes(size, "big"))
    seen = own.look()
    other.append(other.look(), lambda state: judge(1, state))
    own.append(seen, lambda state: judge(2, state))
    assert own.turns.wait()
    assert clock.slept == [log.LONGEST]


class Refused(Exception):
    pass


class Held(PassingTransport):
    """Holds the first publication until it is told to go on."""

    def __init__(self) -> None:
        super().__init__(MemoryTransport())
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.fails_sync = False
        self.looked: list[list[str]] = []

    def perform(self, steps: list[Step]) -> None:  # type: ignore[override]
        if all(isinstance(step, GetStat) for step in steps):
            self.looked.append([step.path for step in steps])
        if any(isinstance(step, Publish) for step in steps):
            self.reached.set()
            assert self.go_on.wait(60)
            if self.fails_sync and any(isinstance(step, SyncDirectory) for step in steps):
                self.inner.perform(steps[:3])
                raise TransportFailed("log", "it cannot be synced")
        self.inner.perform(steps)


class Scene:
    """A change that is being appended, and those that come meanwhile."""

    def __init__(self) -> None:
        self.store = Held()
        begin_log(self.store.inner)
        names = itertools.count()
        self.log = Log(self.store, "r", lambda size: next(names).to_bytes(size, "big"))
        self.group = Group(self.log, lambda: 1.0)
        self.judged: list[tuple[int, list[int]]] = []
        self._threads = ThreadPoolExecutor(32)
        self.first = self.come(0)
        assert self.store.reached.wait(60)

    def come(self, number: int, *, refused_after: int | None = None, size: int = 0) -> Future[Head]:
        def judge(state: State) -> Entry | None:
            there = contents(state)
            self.judged.append((number, there))
            if refused_after in there:
                raise Refused(f"{number} after {refused_after}")
            return None if number in there else Entry(request(number), "joe", bytes(size))

        before = len(self.group._waiting)
        come = self._threads.submit(self.group.append, self.log.look(), judge, lambda state: [GetStat(f"{number}")])
        while len(self.group._waiting) == before:
            pass
        return come

    def end(self) -> None:
        self.store.go_on.set()
        self._threads.shutdown()


def test_those_that_wait_are_one_record() -> None:
    scene = Scene()
    come = [scene.come(number) for number in range(1, 17)]
    twice = scene.come(16)
    late = scene.come(20, refused_after=3)
    scene.end()
    assert scene.first.result().state.version == 2
    assert {each.result().state.version for each in [*come, twice]} == {3}
    with pytest.raises(Refused, match="20 after 3"):
        late.result()
    assert contents(scene.log.look().state) == list(range(17))
    assert scene.store.looked == [["0"], [*map(str, range(1, 17)), "16", "20"]], "a trip for each record"
    assert scene.judged[5] == (5, [0, 1, 2, 3, 4]), "on what those before it leave"


def test_a_large_one_leaves_the_others_for_the_next_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "AT_MOST", 1000)
    scene = Scene()
    come = [scene.come(number, size=size) for number, size in ((1, 10), (2, 1000), (3, 10))]
    scene.end()
    assert [each.result().state.version for each in come] == [3, 3, 4]


def test_where_the_record_is_not_known_to_stand_nobody_is_answered() -> None:
    """Neither is who was refused because of what is in it."""
    scene = Scene()
    scene.store.fails_sync = True
    others = scene.come(1), scene.come(2, refused_after=1)
    scene.end()
    for each in (scene.first, *others):
        with pytest.raises(OutcomeUnknown):
            each.result()
