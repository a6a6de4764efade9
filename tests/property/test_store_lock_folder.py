"""store.lock_folder: writers whose calls are mixed in any order lose no push, and make none twice, whoever dies and
whosever lock is broken."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from unittest import mock

from builders import MAIN, History, Lockless, Repeatable, Stepwise, check_whole, push, refs_of
from hypothesis import given, settings
from hypothesis import strategies as st

from smartserver.errors import OutcomeUnknown
from smartserver.store.repository import PackRepository
from smartserver.store.swap import LockBroken
from transports.base import Transport
from transports.errors import Locked, NoSuchFile, TransportFailed
from transports.memory import MemoryTransport

PUSHES = 3


class Turns:
    """Lets one of several threads go on at a time, which, is drawn at each of their calls; equal seeds, equal order."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._changed = threading.Condition()
        self._alive: list[int] = []
        self._turn = 0

    def run(self, *works: Callable[[], None]) -> None:
        """Do all of them, mixed."""
        self._alive = list(range(len(works)))
        failed: list[BaseException] = []

        def begin(number: int, work: Callable[[], None]) -> None:
            try:
                self._wait(number)
                work()
            except BaseException as wrong:
                failed.append(wrong)
            finally:
                with self._changed:
                    self._alive.remove(number)
                    self._draw()

        threads = [threading.Thread(target=begin, args=each) for each in enumerate(works)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]

    def next(self, number: int) -> None:
        """Give the turn to whoever is drawn, and wait until it comes back."""
        with self._changed:
            self._draw()
        self._wait(number)

    def _draw(self) -> None:
        if self._alive:
            self._turn = self._chance.choice(self._alive)
            self._changed.notify_all()

    def _wait(self, number: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._turn == number, timeout=60)


class Mixed(Stepwise):
    """A store whose every call waits for its writer's turn; from the `end`th on he is dead, and none is done."""

    def __init__(self, inner: Transport, turns: Turns, number: int, end: int = 0) -> None:
        super().__init__(inner)
        self._turns, self._number, self._end = turns, number, end
        self._calls = itertools.count(1)

    def before(self, call: str, path: str) -> None:
        if 0 < self._end <= next(self._calls):
            raise TransportFailed(path, "the process is dead")
        self._turns.next(self._number)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), made=st.booleans(), locks=st.lists(st.booleans(), min_size=2, max_size=3))
def test_no_push_is_lost(seed: int, made: bool, locks: list[bool]) -> None:
    """Each writer has a branch of its own, and one that all move. `made`: the repository is there already; `locks`: of
    each writer whether its store could lock files."""
    storage, history, turns = MemoryTransport(), History(), Turns(seed)
    lines = [history.line(PUSHES, None, f"writer{number}") for number in range(len(locks))]
    if made:
        push(PackRepository(Lockless(storage), "project"), history, [])

    def write(number: int) -> None:
        store: Transport = Mixed(storage if made and locks[number] else Lockless(storage), turns, number)
        repository = PackRepository(store, "project", randomness=Repeatable(number))
        for tip in lines[number]:
            refs = {b"refs/heads/%d" % number: tip, MAIN: tip}
            push(repository, history, [tip], refs)

    with mock.patch.object(time, "sleep", return_value=None):
        turns.run(*[partial(write, number) for number in range(len(locks))])
    repository = PackRepository(storage, "project")
    refs = refs_of(repository)
    assert {refs[b"refs/heads/%d" % number] for number in range(len(locks))} == {line[-1] for line in lines}
    assert refs[MAIN] in {line[-1] for line in lines}
    snapshot = check_whole(repository, history)
    entries = list(snapshot.view.log())
    assert len(entries) == len({entry.request for entry in entries}) == PUSHES * len(locks) + made
    assert snapshot.root.version == len(entries)
    assert storage.list_directory("project/lock") == storage.list_directory("project/incoming") == []
    assert storage.list_directory("") == ["project"]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), end=st.integers(1, 120), breaks=st.lists(st.integers(1, 40), max_size=6))
def test_none_is_lost_where_locks_are_broken(seed: int, end: int, breaks: list[int]) -> None:
    """The first writer dies at one of his calls. An administrator, who has turns too, breaks the lock of whoever has it
    after so many of them, dead or alive; those whose lock he broke push again."""
    storage, history, turns = MemoryTransport(), History(), Turns(seed)
    writers = 3
    lines = [history.line(PUSHES, None, f"writer{number}") for number in range(writers)]
    push(PackRepository(Lockless(storage), "project"), history, [])
    told: list[list[bytes]] = [[] for _ in range(writers)]
    going = set(range(writers))

    def write(number: int) -> None:
        store = Mixed(Lockless(storage), turns, number, 0 if number else end)
        repository = PackRepository(store, "project", randomness=Repeatable(number))
        for tip in lines[number]:
            refs = {b"refs/heads/%d" % number: tip, MAIN: tip}
            while tip not in told[number]:
                with contextlib.suppress(Locked, LockBroken):
                    push(repository, history, [tip], refs)
                    told[number].append(tip)
                turns.next(number)

    def end_writing(number: int) -> None:
        try:
            with contextlib.suppress(*((TransportFailed, OutcomeUnknown) if number == 0 else ())):
                write(number)
        finally:
            going.discard(number)

    def administrate() -> None:
        repository = PackRepository(storage, "project", randomness=Repeatable(99))
        pauses = iter(breaks)
        while going:
            for _ in range(next(pauses, 200)):
                turns.next(writers)
            holder = repository.lock_holder()
            if holder is not None:
                with contextlib.suppress(NoSuchFile):
                    repository.break_lock(holder)

    with mock.patch.object(time, "sleep", return_value=None), mock.patch("smartserver.store.swap.LOCK_WAIT", 0.0):
        turns.run(*[partial(end_writing, number) for number in range(writers)], administrate)
    repository = PackRepository(storage, "project")
    refs = refs_of(repository)
    entries = list(check_whole(repository, history).view.log())
    assert len(entries) == len({entry.request for entry in entries})
    for number in range(writers):
        new = [change.new for each in entries for change in each.changes if change.new]
        pushed = [tip for tip in lines[number] if any(tip in value for value in new)]
        assert pushed[: len(told[number])] == told[number]
        assert len(pushed) - len(told[number]) <= (number == 0)
        assert refs.get(b"refs/heads/%d" % number) == (pushed[-1] if pushed else None)
    assert told[1:] == lines[1:]
