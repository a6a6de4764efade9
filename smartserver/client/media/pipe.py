"""A pipe to a subprocess that speaks the protocol on its standard input and output."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from smartserver.client.media.ready import ready
from smartserver.client.medium import CannotConnect, ConnectionLost
from smartserver.programs import foreign_environment

TIME_TO_END = 5.0
"""Seconds that the client waits for a subprocess to end, after one of its pipes was closed."""

TIME_TO_END_UNNOTICED = 600.0
"""Seconds for a subprocess that has answered to end; no command waits for it. The time is long, because ssh may serve
other connections, too. A master with ControlPersist forks, and the process started here ends. Any other master runs on
for the sessions that share it."""

TIME_TO_BE_HEARD = 1.0
"""Seconds in which the last messages of a subprocess that ended are passed on."""

HOLDS = 1 << 16
"""The most bytes that fit into a pipe that is not read."""

OWN_NAME = "smartserver: "
"""The prefix that the program `smartserver` writes before the line with the reason of a failure."""

FAILED = range(1, 129)
"""Exit statuses of a server that cannot start, and of a shell that cannot find or may not start the server (128 from a
restricted shell). A status above 128 means that a signal ended the program."""

OF_SSH = 255
"""The exit status of ssh, both if the login failed and if the connection was lost. So the server may have started."""


class PipeMedium:
    """A subprocess; implements `Medium`. It shares this process's standard error, unless `quotes` or `passes_on` is
    set."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        where: str | None = None,
        *,
        quotes: bool = False,
        passes_on: bool = False,
        waits: bool = False,
    ) -> None:
        """Start the subprocess.

        `environment`: its variables, by default those of this process; those for a repository are removed
        (`programs.foreign_environment`). `where`: the name of its destination in messages.
        `quotes`: if the program fails before it sends a byte, the error contains the last line of its standard error.
        Otherwise `close` writes out the program's standard error.
        `passes_on`: this process copies the program's standard error to its own. So a program that is lent and runs on
        does not hold this process's standard error open.
        `waits`: the program sends one byte once it is connected, and nothing is sent to it before.

        Raises:
            CannotConnect: the program cannot be started, or it ends without that byte.
        """
        self._where = where or command[0]
        self._program = command[0]
        self._heard = False
        """True once a byte was received."""
        self._taken = 0
        """The number of bytes that the pipe has accepted."""
        self._said: IO[bytes] | None = tempfile.TemporaryFile() if quotes else None  # noqa: SIM115  # See `_take_words`.
        self._lent = False
        self._words: threading.Thread | None = None
        """The thread that passes on the program's standard error."""
        said, says = os.pipe() if passes_on else (None, None)
        self._said_to = said
        """The pipe end from which the program's standard error is read; the thread in `_words` closes it."""
        try:
            self._process = subprocess.Popen(
                list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=self._said if says is None else says, bufsize=0,
                env=foreign_environment(environment),
            )  # fmt: skip
        except OSError as error:
            self._take_words()
            if said is not None:
                os.close(said)
            why = f"{self._program} cannot be run: {error.strerror or error}"
            raise CannotConnect(self._where, why) from None
        finally:
            if says is not None:
                os.close(says)
        assert self._process.stdin is not None, "asked for"
        assert self._process.stdout is not None, "asked for"
        self._in = self._process.stdin
        self._out = self._process.stdout
        os.set_blocking(self._in.fileno(), False)
        if said is not None:
            self._words = threading.Thread(target=_pass_on, args=(said,), name=f"words of {self._program}", daemon=True)
            self._words.start()
        if waits:
            self._wait_for_it()

    def _wait_for_it(self) -> None:
        try:
            if os.read(self._out.fileno(), 1):
                return
            self._process.wait()
            said = self._take_words().strip().splitlines()
            raise CannotConnect(self._where, said[-1] if said else f"{self._program} ended")
        except BaseException:
            self._process.kill()
            self._process.wait()
            self._in.close()
            self._out.close()
            self._take_words()
            raise

    def poll(self, *, read: bool, write: bool, timeout: float | None = None) -> tuple[bool, bool]:
        """Wait until a requested direction is ready; see `Medium.poll`."""
        return ready(self._out.fileno() if read else None, self._in.fileno() if write else None, timeout)

    def read(self, size: int) -> bytes:
        """Read at most `size` bytes, and wait for the first.

        Raises:
            CannotConnect: the program failed before it sent a byte.
        """
        got = os.read(self._out.fileno(), size)
        self._heard = self._heard or bool(got)
        self._check_began()
        return got

    def write_some(self, data: memoryview) -> int:
        """Write as many bytes as the pipe accepts now. Return their number."""
        try:
            taken = os.write(self._in.fileno(), data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            self._check_began()
            raise ConnectionLost(f"{self._process.args!r} ended") from None
        self._taken += taken
        return taken

    def _check_began(self) -> None:
        """After one direction was closed, raise an error if the server never started, because a retry would not
        help."""
        if self._heard or self._taken > HOLDS:
            return
        try:
            status = self._process.wait(TIME_TO_END)
        except subprocess.TimeoutExpired:
            return
        self._hear_out()
        if status in FAILED:
            said = self._take_words().strip().splitlines()
            raise CannotConnect(self._where, said[-1] if said else f"{self._program} ended with status {status}")
        if status == OF_SSH:
            why = "it could not log in, or lost its connection"
            raise CannotConnect(self._where, f"{self._program} ended with status {status}: {why}")

    def lend(self) -> Sequence[int]:
        """Return the descriptors of the program's standard output and input, and with `passes_on` its standard error.
        After that, `close` does not end the program."""
        self._lent = True
        said = [] if self._said_to is None else [self._said_to]
        return [self._out.fileno(), self._in.fileno(), *said]

    def close(self) -> None:
        """Close the program's input. A program that has answered ends by itself (ssh needs another round trip for it).
        If it never answered, or its messages are quoted, wait for its end, and terminate it after a timeout."""
        if self._in.closed:
            return
        self._in.close()
        self._out.close()
        if self._lent:
            self._process.returncode = 0  # The process that has it now notices its end.
            sys.stderr.write(self._take_words())
            return
        if self._heard and self._said is None:
            # A thread waits, so that a long-lived process keeps no zombie, and no server that ignores the end of its
            # input. As a daemon it delays no exit.
            name, seconds = f"end of process {self._process.pid}", (TIME_TO_END_UNNOTICED,)
            try:
                threading.Thread(target=self._end, args=seconds, name=name, daemon=True).start()
            except RuntimeError:  # The interpreter is shutting down, and starts no thread.
                self._end(TIME_TO_END)
            return
        self._end(TIME_TO_END)
        self._hear_out()
        sys.stderr.write(self._take_words())

    def _hear_out(self) -> None:
        """Wait up to `TIME_TO_BE_HEARD` until the last messages of an ended program are passed on. Its children may
        keep the pipe open."""
        if self._words is not None:
            self._words.join(TIME_TO_BE_HEARD)

    def _end(self, seconds: float) -> None:
        """Wait for the program to end, and terminate it after `seconds`."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait()

    def _take_words(self) -> str:
        """Return the quoted standard error, once; empty if standard error is not quoted."""
        said, self._said = self._said, None
        if said is None:
            return ""
        with said:
            said.seek(0)
            return said.read().decode("utf-8", "replace").removeprefix(OWN_NAME)


def _pass_on(words: int) -> None:
    """Copy a pipe to standard error, until the end of the pipe."""
    with contextlib.suppress(OSError, ValueError):  # Nobody listens any more.
        while said := os.read(words, HOLDS):
            sys.stderr.write(said.decode("utf-8", "replace"))
            sys.stderr.flush()
    os.close(words)
