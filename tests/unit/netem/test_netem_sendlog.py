from __future__ import annotations

import os
import sys
import threading

import pytest

from netem.callsites import CallSite, CallSites, of_a_library
from netem.sendlog import SendLog

A, B, C = (((CallSite("program.py", line, "f"),)) for line in (1, 2, 3))


def send(log: SendLog, size: int, sites: CallSites) -> None:
    """A socket sends, and takes `size` bytes."""
    assert log.send(sites, lambda: size) == size


def test_what_comes_in_one_piece_belongs_to_who_began_it() -> None:
    log = SendLog()
    send(log, 10, A)
    send(log, 5, B)
    send(log, 5, C)
    assert [log.received(12), log.received(8)] == [A, B]


def test_a_send_that_took_nothing_is_forgotten() -> None:
    log = SendLog()
    send(log, 10, A)
    send(log, 0, B)
    send(log, 5, C)
    assert [log.received(10), log.received(5)] == [A, C]


def test_a_send_inside_a_send_counts_once() -> None:
    """`sendall` calls `send`, and B is the line inside; what it did not send itself the outer one did."""
    log = SendLog()

    def sendall() -> int:
        send(log, 4, B)
        send(log, 3, B)
        return 9

    assert log.send(A, sendall) == 9
    assert log.sent == 9
    send(log, 5, C)
    assert [log.received(9), log.received(5)] == [B, C]


def test_what_a_failed_send_had_sent_inside_is_counted() -> None:
    log = SendLog()

    def sendall() -> int:
        send(log, 4, B)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        log.send(A, sendall)
    send(log, 5, C)
    assert log.sent == 9
    assert [log.received(4), log.received(5)] == [B, C]


def test_two_threads_that_send_at_once_are_counted_both() -> None:
    """B begins when A has begun, and ends first."""
    log = SendLog()
    begun, ended = threading.Event(), threading.Event()

    def slow() -> int:
        begun.set()
        assert ended.wait(30)
        return 5

    other = threading.Thread(target=lambda: log.send(A, slow))
    other.start()
    assert begun.wait(30)
    send(log, 7, B)
    ended.set()
    other.join()
    assert log.sent == 12
    assert [log.received(7), log.received(5)] == [B, A]


def test_a_socket_may_be_used_before_and_after_a_transport() -> None:
    log = SendLog()
    send(log, 3, A)
    log.writing(4, B)
    send(log, 4, C)
    send(log, 2, C)
    assert [log.received(3), log.received(4), log.received(2)] == [A, B, C]


def test_nothing_is_known_of_a_connection_that_nobody_wrote_to() -> None:
    assert SendLog().received(5) == ()


HERE = os.path.abspath(__file__)


@pytest.mark.parametrize(
    ("path", "library"),
    [
        (os.__file__, True),
        (pytest.__file__, True),
        (os.path.join(os.path.dirname(sys.executable), "pytest"), True),
        ("<frozen importlib._bootstrap>", True),
        ("/usr/lib/python3/dist-packages/x.py", True),
        (HERE, False),
        ("<string>", False),
        ("<stdin>", False),
    ],
)
def test_what_is_a_library(path: str, library: bool) -> None:
    assert of_a_library(path) is library
