"""A pipe to a subprocess that speaks the protocol on its standard input and output."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from smartserver.client.media.ready import ready
from smartserver.client.medium import CannotConnect, ConnectionLost

TIME_TO_END = 5.0
"""Seconds the subprocess has to end once its input is closed."""


class PipeMedium:
    """A subprocess; implements `Medium`. Its standard error is this process's."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start it.

        Raises:
            CannotConnect: it cannot be started.
        """
        try:
            self._process = subprocess.Popen(
                list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment
            )
        except OSError as wrong:
            raise CannotConnect(command[0], wrong.strerror or str(wrong)) from None
        assert self._process.stdin is not None, "asked for"
        assert self._process.stdout is not None, "asked for"
        self._in = self._process.stdin
        self._out = self._process.stdout
        os.set_blocking(self._in.fileno(), False)

    def poll(self, *, read: bool, write: bool, timeout: float | None = None) -> tuple[bool, bool]:
        """Wait for either direction."""
        return ready(self._out.fileno() if read else None, self._in.fileno() if write else None, timeout)

    def read(self, size: int) -> bytes:
        """What came, waiting for the first byte."""
        return os.read(self._out.fileno(), size)

    def write_some(self, data: memoryview) -> int:
        """Hand over what the pipe takes."""
        try:
            return os.write(self._in.fileno(), data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise ConnectionLost(f"{self._process.args!r} ended") from None

    def close(self) -> None:
        """Close its input and wait for it; end it when it does not."""
        self._in.close()
        self._out.close()
        try:
            self._process.wait(TIME_TO_END)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait()
