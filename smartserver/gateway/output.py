"""The output of a git program, sent to a client as fast as the client takes it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any, Final

from twisted.internet import interfaces
from twisted.internet.abstract import FileDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

PIPE: Final = 256 << 10
"""The most bytes in a pipe, which git writes ahead of its client."""

_SET_PIPE_SIZE: Final = 1031
"""F_SETPIPE_SZ of Linux. Python defines the name on Linux only."""

MAX_SAID: Final = 4096
"""The most bytes of a program's standard error that are logged."""


class RunningProgram:
    """A running git program, the pipe with its output, and the file with its standard error."""

    def __init__(self, process: subprocess.Popen[bytes], output: int, said: int) -> None:
        self.process = process
        self.output = output
        self._said = said

    def kill(self) -> None:
        """Kill the program and its children. A program that counts objects writes nothing for minutes and would not
        notice a closed pipe."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def wait(self) -> tuple[int, str]:
        """Wait for the end of the program, which exits once its output has no reader. Return its status and its
        standard error."""
        status = self.process.wait()
        said = os.pread(self._said, MAX_SAID, 0)
        os.close(self._said)
        return status, said.decode("utf-8", "replace").strip()


def pipe() -> tuple[int, int]:
    """Create a pipe whose reading end does not block."""
    output, into = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(output, False)
    with contextlib.suppress(OSError):  # A user's pipes have a total limit.
        fcntl.fcntl(into, _SET_PIPE_SIZE, PIPE)
    return output, into


@implementer(interfaces.IPushProducer)
class ProgramOutput(FileDescriptor):
    """Reads the output of a program while the consumer takes it."""

    def __init__(
        self, reactor: Any, program: RunningProgram, received: Callable[[bytes], object], ended: Callable[[], object]
    ) -> None:
        super().__init__(reactor)
        self._program = program
        self._received = received
        self._ended = ended
        self.connected = 1

    def fileno(self) -> int:
        """Return the descriptor of the output."""
        return self._program.output

    def doRead(self) -> None:
        """Pass on a part of the output, or close the output at its end."""
        try:
            content = os.read(self._program.output, PIPE)
        except BlockingIOError:
            return
        if content:
            self._received(content)
        else:
            self.close()
            self._ended()

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Close the output, because the reactor stops or the descriptor failed."""
        if self.connected:
            self.close()
            self._ended()

    def pauseProducing(self) -> None:
        """Stop reading, because the client accepts no more bytes."""
        self.stopReading()

    def resumeProducing(self) -> None:
        """Resume reading, because the client accepts more bytes."""
        if self.connected:
            self.startReading()

    def stopProducing(self) -> None:
        """Close the output, because the client has disconnected."""
        self.close()

    def close(self) -> None:
        """Stop reading, and close the descriptor."""
        if self.connected:
            self.connected = 0
            self.stopReading()
            os.close(self._program.output)
