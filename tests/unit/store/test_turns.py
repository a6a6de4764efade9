"""store.log: a process that was late leaves the others as long as it needed itself."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from log_builders import begin_log, judge

from smartserver.store import log
from smartserver.store.log import Log, Turns
from transports.base import Step
from transports.decorators.passing import PassingTransport
from transports.memory import MemoryTransport


class Clock:
    """Seconds that pass when it is told, or when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 5.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def late(clock: Clock, needed: float) -> Turns:
    """The turns of a process that was late, needed that many seconds, and has just published."""
    found = Turns(clock, clock.sleep)
    found.retried(needed)
    found.published()
    return found


def test_a_process_that_was_never_late_does_not_wait() -> None:
    clock = Clock()
    alone = Turns(clock, clock.sleep)
    for _ in range(3):
        alone.published()
        assert not alone.wait()
    assert clock.slept == []


@pytest.mark.parametrize(("needed", "since", "slept"), [(0.25, 0.0, 0.25), (0.25, 0.125, 0.125), (9.0, 0.0, 1.0)])
def test_it_waits_as_long_as_it_needed(needed: float, since: float, slept: float) -> None:
    clock = Clock()
    found = late(clock, needed)
    clock.now += since
    assert found.wait()
    assert clock.slept == [slept]


@pytest.mark.parametrize("since", [0.25, log.REMEMBERED + 1])
def test_it_does_not_wait_when_that_is_over(since: float) -> None:
    clock = Clock()
    found = late(clock, 0.25)
    clock.now += since
    assert not found.wait()


class Slow(PassingTransport):
    """A store of which each trip takes a second."""

    def __init__(self, inner: MemoryTransport, clock: Clock) -> None:
        super().__init__(inner)
        self.clock = clock

    def perform(self, steps: Sequence[Step]) -> None:
        self.clock.now += 1.0
        self.inner.perform(steps)


def test_what_a_lost_race_takes_is_measured_at_the_log() -> None:
    clock, store = Clock(), MemoryTransport()
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
