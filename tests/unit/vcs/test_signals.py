"""vcs.signals: what comes while signals are held comes afterwards."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from smartserver.vcs.signals import RAISING, held


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


def test_one_that_came_before_is_not_held(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised before anything is done, and leaves no signal held."""
    mask = signal.pthread_sigmask

    def late(how: int, numbers: Iterator[int]) -> set[int]:
        found = mask(how, numbers)
        if numbers is RAISING:  # type: ignore[comparison-overlap]
            raise Came  # As Python does where one is noted already.
        return set(found)

    monkeypatch.setattr(signal, "pthread_sigmask", late)
    with pytest.raises(Came), held():
        pytest.fail("it went on")
    assert blocked() == set()
