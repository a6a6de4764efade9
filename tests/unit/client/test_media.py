"""client.media.tcp, client.media.pipe, client.media.ready, client.medium: what TCP and a pipe make of a peer that is
not there, goes away, or does not listen."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from medium_suite import read_all

from smartserver.client.media.pipe import HOLDS, PipeMedium
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.medium import CannotConnect, ConnectionLost

pytestmark = pytest.mark.sockets

FD_SETSIZE = 1024
"""File descriptors `select` knows of."""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


# -- TCP


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "b." * 40 + "c" * 64])
def test_a_name_no_host_can_have_is_one_line(host: str) -> None:
    with pytest.raises(CannotConnect, match=r"^cannot connect to .*:7: it is not a valid host name$"):
        TcpMedium(host, 7)


def test_tcp_to_a_host_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(socket.socket):
        def connect(self, *_: object) -> None:
            raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "socket", Silent)
    with pytest.raises(CannotConnect, match=r"cannot connect to \[2001:db8::1\]:4155: no answer within 60 s"):
        TcpMedium("2001:db8::1", 4155)


class Nobody:
    """The socket of a connection that waits for its first write and then finds nobody: at once or by the first read."""

    def __init__(self, number: int, *, at_once: bool) -> None:
        self._error = OSError(number, os.strerror(number))
        self._at_once = at_once
        self.closed = False

    def setsockopt(self, *_: object) -> None: ...

    settimeout = setblocking = connect = setsockopt

    def getpeername(self) -> None:
        raise OSError(errno.ENOTCONN, "")

    def send(self, data: memoryview) -> int:
        if self._at_once:
            raise self._error
        return len(data)

    def recv(self, _: int) -> bytes:
        raise self._error

    def close(self) -> None:
        self.closed = True


UNREACHED = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT, errno.EACCES)


def at(monkeypatch: pytest.MonkeyPatch, nobody: Nobody, *others: tuple[str, int]) -> TcpMedium:
    """A medium to a name whose first address is nobody's."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in (("192.0.2.1", 4155), *others)]
    real, given = socket.socket, [nobody]

    def make(*asked: Any, **more: Any) -> Any:
        return given.pop() if given else real(*asked, **more)

    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "socket", make)
    return TcpMedium("example.org", 4155, fast_open=True)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("number", UNREACHED)
def test_tcp_that_finds_nobody_when_it_first_writes(
    monkeypatch: pytest.MonkeyPatch, number: int, at_once: bool
) -> None:
    why = "no answer within 60 s" if number == errno.ETIMEDOUT else os.strerror(number)
    medium = at(monkeypatch, nobody := Nobody(number, at_once=at_once))
    with pytest.raises(CannotConnect, match=f"^cannot connect to example.org:4155: {why}$"):
        medium.write_some(memoryview(b"x")) and medium.read(1)
    medium.close()
    assert nobody.closed


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("number", UNREACHED)
def test_tcp_goes_on_to_the_next_address_with_what_it_first_wrote(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, number: int, at_once: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone = closed.getsockname()
    got = []

    def answer() -> None:
        peer, _ = listener.accept()
        with peer:
            got.append(peer.recv(5, socket.MSG_WAITALL))
            peer.sendall(b"answer")

    peer = threading.Thread(target=answer)
    peer.start()
    medium = at(monkeypatch, nobody := Nobody(number, at_once=at_once), gone, listener.getsockname())
    assert medium.write_some(memoryview(b"first")) == 5
    assert nobody.closed is at_once
    assert medium.read(100) == b"answer"
    peer.join()
    assert (got, nobody.closed) == ([b"first"], True)
    medium.close()


def test_tcp_whose_other_addresses_are_nobodys_either(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone = closed.getsockname()
    medium = at(monkeypatch, Nobody(errno.EHOSTUNREACH, at_once=False), gone)
    assert medium.write_some(memoryview(b"first")) == 5
    with pytest.raises(CannotConnect, match=r"cannot connect to example\.org:4155: Connection refused"):
        medium.read(1)
    medium.close()


@pytest.mark.parametrize("number", [errno.ECONNRESET, errno.EPIPE])
def test_tcp_that_was_reset_is_not_tried_elsewhere(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    medium = at(monkeypatch, Nobody(number, at_once=False), listener.getsockname())
    assert medium.write_some(memoryview(b"first")) == 5
    with pytest.raises(ConnectionLost, match=os.strerror(number)):
        medium.read(1)


def test_tcp_that_takes_more_was_answered(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second write is taken by a connection alone that is there: should it fail, it was lost."""
    medium = at(monkeypatch, Nobody(errno.ETIMEDOUT, at_once=False), listener.getsockname())
    assert medium.write_some(memoryview(b"first")) == 5
    assert medium.write_some(memoryview(b"second")) == 6
    with pytest.raises(ConnectionLost, match=os.strerror(errno.ETIMEDOUT)):
        medium.read(1)


# -- more descriptors than `select` takes


@pytest.fixture
def crowd() -> Iterator[None]:
    """A process that has more files open than `select` has bits for."""
    wanted = FD_SETSIZE + 100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    opened = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while opened[-1] < FD_SETSIZE:
            opened.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for each in opened:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("crowd")
def test_tcp_beside_many_open_files(listener: socket.socket) -> None:
    medium = TcpMedium(*listener.getsockname())
    peer, _ = listener.accept()
    with peer:
        assert medium._socket.fileno() > FD_SETSIZE
        assert medium.poll(read=True, write=True, timeout=0) == (False, True)
        peer.sendall(b"answer")
        assert read_all(medium, 6) == b"answer"
    medium.close()


# -- a pipe


def python(program: str) -> PipeMedium:
    """A subprocess that runs this."""
    return PipeMedium([sys.executable, "-c", program])


def test_pipe_to_a_command_that_does_not_exist(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    with pytest.raises(
        CannotConnect, match=f"cannot connect to there: {absent} cannot be run: No such file or directory"
    ):
        PipeMedium([absent, "serve"], where="there")


@pytest.mark.parametrize(
    ("status", "why"), [(1, "$"), (2, "$"), (127, "$"), (128, "$"), (255, ": it could not log in, or lost")]
)
def test_pipe_to_a_command_that_cannot_begin(status: int, why: str) -> None:
    """And what ssh ends with is explained."""
    medium = python(f"import sys; sys.exit({status})")
    with pytest.raises(CannotConnect, match=f"cannot connect to .*: .* ended with status {status}{why}"):
        medium.read(1)
    with pytest.raises(CannotConnect, match=f"ended with status {status}{why}"):
        medium.write_some(memoryview(b"x"))
    medium.close()


@pytest.mark.parametrize("ending", ["os.kill(os.getpid(), 9)", "os._exit(137)"])
def test_pipe_to_a_command_that_may_have_begun_is_lost(ending: str) -> None:
    medium = python(f"import os; {ending}")
    assert medium.read(1) == b""
    medium.close()


@pytest.mark.parametrize(("ending", "why"), [("sys.exit('nobody is there')", "nobody is there"), ("pass", "ended")])
def test_a_pipe_that_is_to_be_waited_for_takes_nothing_before(ending: str, why: str) -> None:
    """So that nobody doubts whether it was sent."""
    program = [sys.executable, "-c", f"import sys; {ending}"]
    with pytest.raises(CannotConnect, match=f"cannot connect to there: .*{why}"):
        PipeMedium(program, where="there", quotes=True, waits=True)
    medium = PipeMedium([sys.executable, "-c", "print('+x', end='')"], where="there", quotes=True, waits=True)
    assert medium.read(10) == b"x"
    medium.close()


def test_pipe_to_a_command_that_read_much_is_lost() -> None:
    """More than a pipe takes by itself."""
    medium = python(f"import sys; sys.stdin.buffer.read({4 * HOLDS}); sys.exit(255)")
    block, left = memoryview(bytes(HOLDS)), 4 * HOLDS
    while left:
        assert medium.poll(read=False, write=True, timeout=30) == (False, True)
        left -= medium.write_some(block[:left])
    assert medium.read(1) == b""
    medium.close()


def test_pipe_to_a_command_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It never answered, or its words are kept: they are to be shown."""
    monkeypatch.setattr("smartserver.client.media.pipe.TIME_TO_END", 0.0)
    silent = python("import signal; signal.pause()")
    quoted = PipeMedium([sys.executable, "-c", "import signal; print('here', flush=True); signal.pause()"], quotes=True)
    assert read_all(quoted, 5) == b"here\n"
    for medium in (silent, quoted):
        medium.close()
        assert medium._process.returncode == -signal.SIGTERM


def test_a_command_that_answered_delays_nobody_by_its_end_and_leaves_no_zombie(tmp_path: Path) -> None:
    """The command is one like ssh, which ends a round trip after its input."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    medium = python(f"print('here', flush=True); open({str(gate)!r}).read()")
    assert read_all(medium, 5) == b"here\n"
    medium.close()
    medium.close()
    assert medium._process.returncode is None
    with open(gate, "w"):  # It still runs: this waits until it reads there.
        pass
    (reaper,) = [each for each in threading.enumerate() if each.name == f"end of process {medium._process.pid}"]
    reaper.join(30)
    assert medium._process.returncode == 0


def test_a_command_that_answered_and_does_not_end_is_ended_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no thread can be started any more, as the interpreter shuts down."""
    monkeypatch.setattr("smartserver.client.media.pipe.TIME_TO_END", 0.0)
    monkeypatch.setattr("smartserver.client.media.pipe.TIME_TO_END_UNNOTICED", 0.0)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    for start in (threading.Thread.start, refuse):
        medium = python("import signal; print('here', flush=True); signal.pause()")
        assert read_all(medium, 5) == b"here\n"
        monkeypatch.setattr(threading.Thread, "start", start)
        medium.close()
        for each in threading.enumerate():
            if each.name == f"end of process {medium._process.pid}":
                each.join(30)
        assert medium._process.returncode == -signal.SIGTERM


def test_what_a_pipe_says_that_began_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    program = "import sys; sys.stdout.write('x'); sys.stderr.write('a line of the log\\n')"
    medium = PipeMedium([sys.executable, "-c", program], quotes=True)
    assert read_all(medium, 1) == b"x"
    medium.close()
    assert capfd.readouterr().err == "a line of the log\n"
    medium.close()
    assert capfd.readouterr().err == ""


def test_a_quoted_pipe_that_cannot_begin_says_why_once(capfd: pytest.CaptureFixture[str]) -> None:
    program = "import sys; sys.exit('a warning\\nsmartserver: not for you')"
    medium = PipeMedium([sys.executable, "-c", program], where="there", quotes=True)
    with pytest.raises(CannotConnect, match=r"^cannot connect to there: smartserver: not for you$"):
        medium.read(1)
    medium.close()
    assert capfd.readouterr().err == ""
