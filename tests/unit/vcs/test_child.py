"""vcs.child: what becomes of the errors of a forked process. Its work is in `interop/test_brz_repository.py`."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import tempfile
from collections.abc import Callable, Iterator

import pytest
from agents import children

from smartserver.vcs.base import VcsError, WrongContent
from smartserver.vcs.child import Child, streamed


@pytest.fixture
def answer() -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        yield file.fileno()


def test_an_error_for_the_user_is_raised_here(answer: int) -> None:
    def work() -> bytes:
        raise WrongContent(b"key", "too short")

    with pytest.raises(WrongContent) as caught:
        Child(answer, work).wait()
    assert (caught.value.key, caught.value.why) == (b"key", "too short")


def killed() -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (lambda: b"%d" % (1 // 0), r"ZeroDivisionError\('.*'\)"),
        (killed, "signal 9"),
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

    with pytest.raises(WrongContent):
        came.extend(streamed(chunks()))
    assert b"".join(came) == b"".join(pieces)


def test_a_stream_that_is_left_ends_its_process() -> None:
    others = children(os.getpid())
    came = streamed(itertools.repeat(b"%d" % 7 * 1000))
    next(came)
    assert len(children(os.getpid())) == len(others) + 1
    came.close()  # type: ignore[attr-defined]
    assert children(os.getpid()) == others


def test_without_a_temporary_file_nothing_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(tempfile, "TemporaryFile", fail)
    with pytest.raises(OSError, match="no room"):
        next(streamed([b"x"]))
    assert os.listdir("/proc/self/fd") == before
