"""store.lock_folder: writers whose calls are mixed in any order lose no push, and make none twice."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from unittest import mock

from builders import MAIN, History, Lockless, Repeatable, Stepwise, check_whole, push, refs_of
from hypothesis import given, settings
from hypothesis import strategies as st

from smartserver.store.repository import PackRepository
from transports.base import Transport
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
    """A store whose every call waits for its writer's turn."""

    def __init__(self, inner: Transport, turns: Turns, number: int) -> None:
        super().__init__(inner)
        self._turns, self._number = turns, number

    def before(self, call: str, path: str) -> None:
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
