"""store.lock_folder: writers whose calls are mixed in any order lose no push, and make none twice, whoever dies and
whosever lock is broken."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import ClassVar
from unittest import mock

from builders import MAIN, History, Lockless, Repeatable, Stepwise, check_whole, push, refs_of
from hypothesis import given, settings
from hypothesis import strategies as st

from smartserver.errors import OutcomeUnknown
from smartserver.store.publish.folder import LockBroken
from smartserver.store.repository import PackRepository
from transports.base import Step, Transport
from transports.errors import Locked, NoSuchFile, TransportFailed
from transports.memory import MemoryTransport

PUSHES = 3
TRIES = 300
"""Of a push, after which the lock that is in its way is one that nobody lets go of; some 100 are the most there are."""


class Turns:
    """Lets one of several threads go on at a time, which, is drawn at each of their calls; equal seeds, equal order."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._changed = threading.Condition()
        self._alive: list[int] = []
        self._stopped: dict[int, int] = {}
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

    def stop(self, number: int, draws: int) -> None:
        """Leave one out of so many draws, as long as there are others."""
        with self._changed:
            self._stopped[number] = draws

    def _draw(self) -> None:
        if self._alive:
            going = [number for number in self._alive if not self._stopped.get(number)]
            self._stopped = {number: left - 1 for number, left in self._stopped.items() if left}
            self._turn = self._chance.choice(going or self._alive)
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


class Named(Repeatable):
    """Tells whose a nonce is."""

    owners: ClassVar[dict[str, int]] = {}

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self._number = number

    def __call__(self, size: int) -> bytes:
        made = super().__call__(size)
        self.owners[made.hex()] = self._number
        return made


BREAKS = st.tuples(st.integers(1, 12), st.integers(0, 60))
"""How often the administrator sees a lock held until he breaks it, and how many calls of others its holder, whom he has
stopped, is late by then."""


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), end=st.integers(1, 200), breaks=st.lists(BREAKS, min_size=1, max_size=6))
def test_none_is_lost_where_locks_are_broken(seed: int, end: int, breaks: list[tuple[int, int]]) -> None:
    """The first writer dies at one of his calls. An administrator, who has turns too, breaks the lock of whoever has
    it, dead or alive; those whose lock he broke go on later as if they had it, and push again once they know."""
    storage, history, turns = MemoryTransport(), History(), Turns(seed)
    writers = 3
    lines = [history.line(PUSHES, None, f"writer{number}") for number in range(writers)]
    push(PackRepository(Lockless(storage), "project"), history, [])
    told: list[list[bytes]] = [[] for _ in range(writers)]
    going = set(range(writers))

    def write(number: int) -> None:
        store = Mixed(Lockless(storage), turns, number, 0 if number else end)
        repository = PackRepository(store, "project", randomness=Named(number))
        for tip in lines[number]:
            refs = {b"refs/heads/%d" % number: tip, MAIN: tip}
            for _ in range(TRIES):
                with contextlib.suppress(Locked, LockBroken):
                    push(repository, history, [tip], refs)
                    told[number].append(tip)
                    break
                turns.next(number)

    def end_writing(number: int) -> None:
        try:
            with contextlib.suppress(*((TransportFailed, OutcomeUnknown) if number == 0 else ())):
                write(number)
        finally:
            going.discard(number)

    def administrate() -> None:
        repository = PackRepository(storage, "project", randomness=Repeatable(99))
        pauses = itertools.chain(breaks, itertools.repeat((60, 0)))
        seen, late = next(pauses)
        while going:
            turns.next(writers)
            holder = repository.lock_holder()
            seen -= holder is not None
            if holder is not None and seen <= 0:
                turns.stop(Named.owners[holder.nonce], late)
                with contextlib.suppress(NoSuchFile):
                    repository.break_lock(holder)
                seen, late = next(pauses)

    with mock.patch.object(time, "sleep", return_value=None), mock.patch("smartserver.store.swap.LOCK_WAIT", 0.0):
        turns.run(*[partial(end_writing, number) for number in range(writers)], administrate)
    check_log(storage, history, lines, told, unknown={0})
    assert told[1:] == lines[1:]


def check_log(
    storage: MemoryTransport,
    history: History,
    lines: list[list[bytes]],
    told: list[list[bytes]],
    unknown: Collection[int] = (),
) -> None:
    """What a writer was told of is there, once and in order, and no more than one push of those who were told nothing
    of it."""
    repository = PackRepository(storage, "project")
    refs = refs_of(repository)
    entries = list(check_whole(repository, history).view.log())
    assert len(entries) == len({entry.request for entry in entries})
    for number, line in enumerate(lines):
        new = [change.new for each in entries for change in each.changes if change.new]
        pushed = [tip for tip in line if any(tip in value for value in new)]
        assert pushed[: len(told[number])] == told[number]
        assert len(pushed) - len(told[number]) <= (number in unknown)
        assert refs.get(b"refs/heads/%d" % number) == (pushed[-1] if pushed else None)


class Interrupting(Mixed):
    """At some of his calls the writer is interrupted, before it is done or after."""

    def __init__(self, inner: Transport, turns: Turns, number: int, gaps: Iterable[tuple[int, bool]]) -> None:
        super().__init__(inner, turns, number)
        at = itertools.accumulate(gap for gap, _ in gaps)
        self._at = dict(zip(at, (after for _, after in gaps), strict=True))
        self._step = itertools.count(1)

    def perform(self, steps: Sequence[Step]) -> None:
        """One after the other, as what carries them may be interrupted between any two."""
        for step in steps:
            when = self._at.pop(next(self._step), None)
            if when is False:
                raise KeyboardInterrupt
            step.do(self)
            if when is True:
                raise KeyboardInterrupt


INTERRUPTIONS = st.lists(st.tuples(st.integers(8, 60), st.booleans()), min_size=1, max_size=6)
"""Calls from one to the next, and whether it is after the call. A writer who is interrupted lets go of the lock, for
which 8 calls are enough: who is interrupted in that, too, may leave it."""


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), interrupted=st.lists(INTERRUPTIONS, min_size=2, max_size=2))
def test_who_is_interrupted_keeps_no_lock(seed: int, interrupted: list[list[tuple[int, bool]]]) -> None:
    """Whatever he was doing; he pushes again, and nobody breaks a lock."""
    storage, history, turns = MemoryTransport(), History(), Turns(seed)
    lines = [history.line(PUSHES, None, f"writer{number}") for number in range(len(interrupted))]
    push(PackRepository(Lockless(storage), "project"), history, [])
    told: list[list[bytes]] = [[] for _ in lines]

    def write(number: int) -> None:
        store = Interrupting(Lockless(storage), turns, number, interrupted[number])
        repository = PackRepository(store, "project", randomness=Repeatable(number))
        for tip in lines[number]:
            refs = {b"refs/heads/%d" % number: tip, MAIN: tip}
            for _ in range(TRIES):
                with contextlib.suppress(KeyboardInterrupt, Locked):
                    push(repository, history, [tip], refs)
                    told[number].append(tip)
                    break
                turns.next(number)

    with mock.patch.object(time, "sleep", return_value=None), mock.patch("smartserver.store.swap.LOCK_WAIT", 0.0):
        turns.run(*[partial(write, number) for number in range(len(lines))])
    assert told == lines
    check_log(storage, history, lines, told)
    assert storage.list_directory("project/lock") == []
