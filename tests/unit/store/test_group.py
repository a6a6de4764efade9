"""store.commit.Group: what waits at the same time is one record, and each change has its own answer."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from log_builders import begin_log, contents, request

from smartserver.errors import OutcomeUnknown
from smartserver.store import commit
from smartserver.store.commit import Group
from smartserver.store.log import Log
from smartserver.store.log_view import Head
from smartserver.store.record import Entry
from smartserver.store.state import State
from transports.base import Step
from transports.decorators.passing import PassingTransport
from transports.errors import TransportFailed
from transports.memory import MemoryTransport
from transports.steps import GetStat, Publish, SyncDirectory


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
