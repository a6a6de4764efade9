"""vcs.signals: what comes while signals are held comes afterwards."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Collection, Iterator

import pytest

from smartserver.vcs.signals import RAISING, be_ended_by_signals, held


class Came(Exception):
    pass


@pytest.fixture(params=RAISING)
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    """A signal that raises `Came`."""

    def come(_number: int, _frame: object) -> None:
        raise Came

    before = signal.signal(request.param, come)
    yield request.param
    signal.signal(request.param, before)


def blocked() -> set[int]:
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def test_it_comes_when_all_is_done(number: int) -> None:
    done = []

    def work() -> None:
        with held() as before:
            signal.pthread_kill(threading.get_ident(), number)  # What runs these tests may have other threads.
            done.append(before)

    with pytest.raises(Came):
        work()
    assert done == [set()]
    assert blocked() == set()


def test_what_was_held_before_still_is(number: int) -> None:
    with held():
        with held() as before:
            assert number in before
        assert number in blocked()
    assert blocked() == set()


def test_one_that_came_before_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised before anything is done, and leaves no signal held."""
    mask = signal.pthread_sigmask

    def late(how: int, numbers: Collection[int]) -> set[int]:
        found = mask(how, numbers)
        if numbers is RAISING:
            raise Came  # As Python does where one is noted already.
        return set(found)

    monkeypatch.setattr(signal, "pthread_sigmask", late)
    with pytest.raises(Came), held():
        pytest.fail("it went on")
    assert blocked() == set()


@pytest.mark.parametrize("number", RAISING)
def test_in_a_forked_process_they_do_what_they_do_to_any(number: int) -> None:
    """But not an interrupt, which its parent gets too."""
    pid = forked(number)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == (7 if number == signal.SIGINT else -number)


def forked(number: int) -> int:
    """A process with what the parent would do of a signal, which gets one."""

    def come(_number: int, _frame: object) -> None:
        os._exit(9)

    before = signal.signal(number, come)
    try:
        pid = os.fork()
        if not pid:
            try:
                be_ended_by_signals()
                os.kill(os.getpid(), number)
            finally:
                os._exit(7)
    finally:
        signal.signal(number, before)
    return pid
