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
"""Seconds a subprocess that is waited for has to end once its input is closed, or it has closed its output."""

TIME_TO_END_UNNOTICED = 600.0
"""The same for one that has answered, which delays nobody. It is long, since ssh may lead others, too: as a master with
ControlPersist it forks, and what was started here ends; as one without, it stays for the sessions that share it."""

TIME_TO_BE_HEARD = 1.0
"""Seconds in which the words of a subprocess that ended are passed on."""

HOLDS = 1 << 16
"""Bytes a pipe takes that nobody reads."""

OWN_NAME = "smartserver: "
"""The prefix that our own program puts before the line that says why it failed."""

FAILED = range(1, 129)
"""Statuses of a server that cannot begin, of a shell that cannot find one, and of one that may not start it (128 from a
restricted one). A shell has more than 128 for a program that a signal ended."""

OF_SSH = 255
"""The status of ssh both where it could not log in and where it lost its connection: the server may have begun."""


class PipeMedium:
    """A subprocess; implements `Medium`. Its standard error is this process's, unless it is quoted."""

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
        """Start it. `environment`: its variables, without those for a repository (`programs.foreign_environment`);
        None: those of this process.
        `where`: what it leads to, as messages name it. `quotes`: the last line of a program that cannot
        begin is why, in the error that is raised; what one says that began goes to standard error when it is closed.
        `passes_on`: it has no standard error of this process's, which gets its words while it is here, so that one that
        is lent on keeps nobody waiting who reads that to its end. `waits`: it says one byte once it leads anywhere, and
        nothing is handed to it before.

        Raises:
            CannotConnect: it cannot be started, or it ends without that byte.
        """
        self._where = where or command[0]
        self._program = command[0]
        self._heard = False
        """True once a byte came."""
        self._taken = 0
        """Bytes the pipe has taken."""
        self._said: IO[bytes] | None = tempfile.TemporaryFile() if quotes else None  # noqa: SIM115  # See `_take_words`.
        self._lent = False
        self._words: threading.Thread | None = None
        """Passes on what it says."""
        said, says = os.pipe() if passes_on else (None, None)
        self._said_to = said
        """The end that it is read from; that thread closes it."""
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
        """Wait for either direction."""
        return ready(self._out.fileno() if read else None, self._in.fileno() if write else None, timeout)

    def read(self, size: int) -> bytes:
        """Read the next bytes, waiting for the first.

        Raises:
            CannotConnect: it ended with an error and without a word.
        """
        got = os.read(self._out.fileno(), size)
        self._heard = self._heard or bool(got)
        self._check_began()
        return got

    def write_some(self, data: memoryview) -> int:
        """Hand over what the pipe takes."""
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
        """Raise an error for a server that never began, when one direction is closed: to begin again helps nobody."""
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
        """Its output, its input and what it says besides; from now on it goes on without this process."""
        self._lent = True
        said = [] if self._said_to is None else [self._said_to]
        return [self._out.fileno(), self._in.fileno(), *said]

    def close(self) -> None:
        """Close its input. A program that has answered ends by itself (ssh needs another round trip for it); one that
        never did, or whose words are quoted, is waited for, and ended when it does not end."""
        if self._in.closed:
            return
        self._in.close()
        self._out.close()
        if self._lent:
            self._process.returncode = 0  # Whoever has it then sees its end.
            sys.stderr.write(self._take_words())
            return
        if self._heard and self._said is None:
            # In a thread, so that a process that goes on keeps no zombie, and no server that ignores the end of its
            # input; as a daemon it delays no exit.
            name, seconds = f"end of process {self._process.pid}", (TIME_TO_END_UNNOTICED,)
            try:
                threading.Thread(target=self._end, args=seconds, name=name, daemon=True).start()
            except RuntimeError:  # The interpreter shuts down, and starts none.
                self._end(TIME_TO_END)
            return
        self._end(TIME_TO_END)
        self._hear_out()
        sys.stderr.write(self._take_words())

    def _hear_out(self) -> None:
        """Have the last words of one that ended passed on; what it started may go on and say nothing."""
        if self._words is not None:
            self._words.join(TIME_TO_BE_HEARD)

    def _end(self, seconds: float) -> None:
        """Wait for its end; one that takes longer is ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait()

    def _take_words(self) -> str:
        """The new text of its standard error, where that is kept."""
        said, self._said = self._said, None
        if said is None:
            return ""
        with said:
            said.seek(0)
            return said.read().decode("utf-8", "replace").removeprefix(OWN_NAME)


def _pass_on(words: int) -> None:
    """Write to standard error what is said there, to its end."""
    with contextlib.suppress(OSError, ValueError):  # Nobody listens any more.
        while said := os.read(words, HOLDS):
            sys.stderr.write(said.decode("utf-8", "replace"))
            sys.stderr.flush()
    os.close(words)
