"""vcs.child, signals, collector: the ends of a forked process, signals that are held, and rare collections."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import re
import signal
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator

import pytest
from agents import children
from calls import raising

from smartserver.vcs.base import VcsError, WrongContent
from smartserver.vcs.child import Child, streamed
from smartserver.vcs.collector import RARELY, rare_collections
from smartserver.vcs.signals import RAISING, be_ended_by_signals, held


@pytest.fixture
def answer() -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        yield file.fileno()


def killed() -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def full() -> bytes:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (lambda: b"%d" % (1 // 0), r"ZeroDivisionError\('.*'\)"),
        (killed, "signal 9"),
        (full, f"No space left on device: '{re.escape(tempfile.gettempdir())}'"),
        (lambda: os._exit(7), "status 7"),
    ],
)
def test_any_other_end_is_a_failure(answer: int, work: Callable[[], bytes], why: str) -> None:
    with pytest.raises(VcsError, match=f"^a worker process failed: {why}$"):
        Child(answer, work).wait()


def test_what_is_streamed_comes_whole_before_an_error() -> None:
    pieces = [b"%d " % number * 1000 for number in range(200)]
    came: list[bytes] = []

    def chunks() -> Iterator[bytes]:
        yield from pieces
        raise WrongContent(b"key", "too short")

    with pytest.raises(WrongContent) as caught:
        came.extend(streamed(chunks()))
    assert (caught.value.key, caught.value.why) == (b"key", "too short")
    assert b"".join(came) == b"".join(pieces)


def test_a_stream_that_is_left_ends_its_process() -> None:
    others = children(os.getpid())
    came = streamed(itertools.repeat(b"%d" % 7 * 1000))
    next(came)
    assert len(children(os.getpid())) == len(others) + 1
    came.close()  # type: ignore[attr-defined]
    assert children(os.getpid()) == others


def test_without_a_temporary_file_nothing_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(tempfile, "TemporaryFile", raising(OSError(errno.ENOSPC, "no room")))
    with pytest.raises(OSError, match="no room"):
        next(streamed([b"x"]))
    assert os.listdir("/proc/self/fd") == before


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


def test_it_looks_rarely_until_the_last_context_is_left() -> None:
    before = gc.get_threshold()
    one, other = rare_collections(), rare_collections()
    with one:
        assert gc.get_threshold() == (RARELY, *before[1:])
        other.__enter__()
    assert gc.get_threshold()[0] == RARELY, "a context that was opened later is left later, too"
    other.__exit__(None, None, None)
    assert gc.get_threshold() == before
