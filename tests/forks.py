"""Python programs as processes forked from one that has already imported their modules, so that they start quickly.

Run as a program, this module is that process: it imports the modules that most of its programs need, opens nothing,
starts no thread, and forks for each request at a socket. A fork cannot test a start itself: a missing import, a signal
during the start, the process group of a terminal. The tests of these start programs as users do: `Users.start` of brz,
`test_brz_process`, `User.start` of git with our remote program, `test_a_run_loads_nothing_heavy`, and all in
`tests/unit/cli`.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import fcntl
import gc
import importlib
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

STAND_IN = """\
#!{python} -IS
# Stands in for a program that is forked: with its streams, and until it ends.
import _socket, os, sys  # `socket` would take as long as all the rest.

if any(name.startswith("PYTHON") for name in os.environ):  # It is Python's start that heeds them.
    os.execv({program!r}, [{program!r}, *sys.argv[1:]])
connection = _socket.socket(_socket.AF_UNIX)
connection.connect({address!r})
fds = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2))
connection.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
asked = [{run!r}, *sys.argv[1:]], os.getcwd(), dict(os.environ), (0, 1, 2), os.getppid()
connection.sendall(ascii(asked).encode() + b"\\n")
os.closerange(0, 3)
connection.recv(4)
answer = connection.recv(4)
status = int.from_bytes(answer, sys.byteorder, signed=True)
if status < 0:
    os.kill(os.getpid(), -status)
os._exit(status if answer else 255)
"""


class Request(NamedTuple):
    """The program that a forked process becomes, and the process that asks for it."""

    words: Sequence[str]
    """The words after `python`: `-m` and a module, `-c` and a program, or a file; then arguments."""
    folder: str
    environment: Mapping[str, str]
    fds: Sequence[int]
    """The numbers that its descriptors get."""
    parent: int


class Fork:
    """A running process, with the needed part of `subprocess.Popen`."""

    def __init__(self, args: Sequence[str], connection: socket.socket) -> None:
        self.args = args
        self.returncode: int | None = None
        self._connection = connection
        self._answers = select.poll()
        self._answers.register(connection, select.POLLIN)
        self.pid = self._answer()

    def _answer(self) -> int:
        answer = self._connection.recv(4)
        if not answer:
            self._connection.close()
            raise AssertionError("the process that all are forked from has ended")
        return int.from_bytes(answer, sys.byteorder, signed=True)

    def poll(self) -> int | None:
        """Return its exit status, or None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return its exit status, or the negative number of the signal that ended it."""
        status = self._ended(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return status

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and self._answers.poll(None if timeout is None else timeout * 1000):
            self.returncode = self._answer()
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def forget(self) -> None:
        """Close the connection to it, which kills it."""
        self._connection.close()

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forks:
    """Starts processes with the same imports. The process that they are forked from starts with the first."""

    def __init__(self, *imported: str) -> None:
        self._imported = imported
        self._folder = tempfile.TemporaryDirectory()
        self._process: subprocess.Popen[bytes] | None = None
        self._first = threading.Lock()

    def start(
        self,
        *words: str,
        stdout: int | None = None,
        stderr: int | None = None,
        folder: Path | str = ".",
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Fork:
        """Start a process in a group of its own, which reads nothing. It dies when the caller ends or forgets it."""
        given = os.environ if environment is None else environment
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(self._address(given))
            with open(os.devnull, "r+b", buffering=0) as nothing:
                streams = [nothing.fileno() if each is None else each for each in (None, stdout, stderr)]
                socket.send_fds(connection, [b"."], [*streams, *pass_fds])
            request = Request(words, os.path.abspath(folder), dict(given), (0, 1, 2, *pass_fds), os.getpid())
            connection.sendall(ascii(tuple(request)).encode() + b"\n")
            return Fork(words, connection)
        except BaseException:
            connection.close()
            raise

    def run(
        self,
        *words: str,
        timeout: float,
        folder: Path | str = ".",
        environment: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes, bytes]:
        """Run a command, and return its exit status, standard output and standard error.

        Raises:
            subprocess.TimeoutExpired: it took longer than `timeout` seconds, and was killed.
        """
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = self.start(
                *words, stdout=out.fileno(), stderr=err.fileno(), folder=folder, environment=environment
            )
            try:
                status = process.wait(timeout)
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise
            out.seek(0)
            err.seek(0)
            return status, out.read(), err.read()

    def stand_in(self, program: Path, run: Path | None = None) -> Path:
        """Return a folder for the path, with a stand-in for `program` that forks. `run`: another Python file to run."""
        address = self._address(os.environ)
        stands_in = Path(self._folder.name, "programs", program.name)
        if not stands_in.exists():
            stands_in.parent.mkdir(exist_ok=True)
            made = stands_in.with_name(f"{program.name}.{threading.get_ident()}")
            words = {"program": str(program), "run": str(run or program)}
            made.write_text(STAND_IN.format(python=sys.executable, address=address, **words))
            made.chmod(0o755)
            made.rename(stands_in)
        return stands_in.parent

    def _address(self, environment: Mapping[str, str]) -> str:
        address = f"{self._folder.name}/asked"
        with self._first:
            if self._process is not None:
                return address
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(address)
                listening.listen(128)
                self._process = subprocess.Popen(
                    [sys.executable, __file__, str(listening.fileno()), *self._imported],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    env=environment,
                    pass_fds=[listening.fileno()],
                    start_new_session=True,
                )
                atexit.register(self.close)
        return address

    def close(self) -> None:
        """End the process that they are forked from, and with it all that still run."""
        if self._process is not None:
            self._process.communicate()
            self._folder.cleanup()


def asked(connection: socket.socket) -> tuple[Request, list[int]]:
    """Receive a request for a process, with the descriptors that it gets."""
    _, fds, _, _ = socket.recv_fds(connection, 1, 253)
    with connection.makefile("rb") as line:
        return Request(*ast.literal_eval(line.readline().decode())), fds


def serve(listening: socket.socket) -> tuple[Request, list[int]]:
    """Fork for each request until no client is left. In a forked child, return its request."""
    told, ended = socket.socketpair()  # A byte comes for each process that ends.
    told.setblocking(False)
    ended.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ended.fileno(), warn_on_full_buffer=False)
    with selectors.PollSelector() as selector:
        for each in (0, listening, told):
            selector.register(each, selectors.EVENT_READ, 0)
        running: dict[int, socket.socket] = {}
        while True:
            for key, _ in selector.select():
                if key.fileobj == 0:
                    for process in running:
                        os.kill(process, signal.SIGKILL)
                    os._exit(0)
                elif key.fileobj is listening:
                    connection, _ = listening.accept()
                    request, fds = asked(connection)
                    process = os.fork()
                    if process == 0:
                        signal.set_wakeup_fd(-1)
                        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                        for open_one in (listening, connection, told, ended, *running.values()):
                            open_one.close()
                        return request, fds
                    for fd in fds:
                        os.close(fd)
                    running[process] = connection
                    tell(connection, process)
                    selector.register(connection, selectors.EVENT_READ, process)
                elif key.fileobj is told:
                    told.recv(4096)
                    for process, status in reaped(running):
                        with running.pop(process) as connection:
                            if connection in selector.get_map():
                                selector.unregister(connection)
                            tell(connection, status)
                elif key.data in running:  # Else it has just ended.
                    os.kill(key.data, signal.SIGKILL)  # Nobody asks any more.
                    selector.unregister(key.fileobj)


def reaped(running: Iterable[int]) -> list[tuple[int, int]]:
    """Return the processes that have ended, each with its exit status or the negative number of its signal."""
    found = [os.waitpid(process, os.WNOHANG) for process in running]
    return [(process, os.waitstatus_to_exitcode(status)) for process, status in found if process]


def tell(connection: socket.socket, number: int) -> None:
    """Send a number to the client, if it still listens."""
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(number.to_bytes(4, sys.byteorder, signed=True))


def become(request: Request, fds: list[int]) -> None:
    """Act as a new Python process with this request."""
    os.setsid()
    above = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(request.fds) + 1) for fd in fds]
    for fd in fds:
        os.close(fd)
    for fd, number in zip(above, request.fds, strict=True):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdout = os.fdopen(1, "w", closefd=False)  # The one before knows whether another file can be sought in.
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    os.getppid = lambda: request.parent
    if request.words[0] == "-m":
        sys.argv = list(request.words[1:])
        sys.path[0] = request.folder
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    elif request.words[0] == "-c":
        sys.argv = ["-c", *request.words[2:]]
        sys.path[0] = ""
        exec(request.words[1], {"__name__": "__main__"})
    else:
        sys.argv = list(request.words)
        sys.path[0] = os.path.dirname(sys.argv[0])
        runpy.run_path(sys.argv[0], run_name="__main__")


def end(status: int) -> None:
    """End as Python does, but free nothing: freeing copies pages, and takes four fifths of a short program's time."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # One is closed, or nobody reads it: Python's end knows what to do.
        sys.exit(status)
    os._exit(status & 0xFF)


def main() -> None:
    """Import the named modules, and serve forks."""
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        for name in sys.argv[2:]:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()
        request, fds = serve(listening)
    try:
        become(request, fds)
        status = 0
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        status = ended.code or 0
    end(status)


if __name__ == "__main__":
    main()
