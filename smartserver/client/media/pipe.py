"""A pipe to a subprocess that speaks the protocol on its standard input and output."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from smartserver.client.media.ready import ready
from smartserver.client.medium import CannotConnect, ConnectionLost

TIME_TO_END = 5.0
"""Seconds the subprocess has to end once its input is closed, or it has closed its output."""

HOLDS = 1 << 16
"""Bytes a pipe takes that nobody reads."""

FAILED = range(1, 128)
"""What a server ends with that cannot begin, and a shell that cannot find one. What a signal ends has more than 128 to
a shell, and ssh ends with 255 whether it could not log in or lost its connection: what it leads to may have begun."""


class PipeMedium:
    """A subprocess; implements `Medium`. Its standard error is this process's."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, where: str | None = None
    ) -> None:
        """Start it; `where`: what it leads to, as messages name it.

        Raises:
            CannotConnect: it cannot be started.
        """
        self._where = where or command[0]
        self._program = command[0]
        self._heard = False
        """Whether a byte ever came."""
        self._taken = 0
        """Bytes the pipe has taken."""
        try:
            self._process = subprocess.Popen(
                list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment
            )
        except OSError as wrong:
            why = f"{self._program} cannot be run: {wrong.strerror or wrong}"
            raise CannotConnect(self._where, why) from None
        assert self._process.stdin is not None, "asked for"
        assert self._process.stdout is not None, "asked for"
        self._in = self._process.stdin
        self._out = self._process.stdout
        os.set_blocking(self._in.fileno(), False)

    def poll(self, *, read: bool, write: bool, timeout: float | None = None) -> tuple[bool, bool]:
        """Wait for either direction."""
        return ready(self._out.fileno() if read else None, self._in.fileno() if write else None, timeout)

    def read(self, size: int) -> bytes:
        """What came, waiting for the first byte.

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
        if status in FAILED:
            raise CannotConnect(self._where, f"{self._program} ended with status {status}")

    def close(self) -> None:
        """Close its input and wait for it; end it when it does not."""
        self._in.close()
        self._out.close()
        try:
            self._process.wait(TIME_TO_END)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait()
