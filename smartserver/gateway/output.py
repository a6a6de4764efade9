"""The output of a program of git, given to a client as fast as that takes it."""

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
"""Bytes that a pipe may hold: what git writes ahead of a client that takes it."""

_SET_PIPE_SIZE: Final = 1031
"""F_SETPIPE_SZ of Linux, which Python knows from 3.10 on there alone."""

MAX_SAID: Final = 4096
"""Bytes of what a program said to standard error that are logged."""


class RunningProgram:
    """A program of git, and the ends of its pipes that are ours."""

    def __init__(self, process: subprocess.Popen[bytes], output: int, said: int) -> None:
        self.process = process
        self.output = output
        self._said = said

    def kill(self) -> None:
        """Kill it, with the programs that it runs: one that counts objects writes nothing for minutes, and would not
        notice."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def wait(self) -> tuple[int, str]:
        """Its status, and what it said, once it has ended, as it does without a reader."""
        status = self.process.wait()
        said = os.pread(self._said, MAX_SAID, 0)
        os.close(self._said)
        return status, said.decode("utf-8", "replace").strip()


def pipe() -> tuple[int, int]:
    """A pipe whose reader does not wait."""
    output, into = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(output, False)
    with contextlib.suppress(OSError):  # A user may have only so much in pipes.
        fcntl.fcntl(into, _SET_PIPE_SIZE, PIPE)
    return output, into


@implementer(interfaces.IPushProducer)
class ProgramOutput(FileDescriptor):
    """Reads the output of a program while its consumer takes it."""

    def __init__(
        self, reactor: Any, program: RunningProgram, received: Callable[[bytes], object], ended: Callable[[], object]
    ) -> None:
        super().__init__(reactor)
        self._program = program
        self._received = received
        self._ended = ended
        self.connected = 1

    def fileno(self) -> int:
        """Its descriptor."""
        return self._program.output

    def doRead(self) -> None:
        """Something is there."""
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
        """The reactor stops, or the descriptor failed."""
        if self.connected:
            self.close()
            self._ended()

    def pauseProducing(self) -> None:
        """The client has enough."""
        self.stopReading()

    def resumeProducing(self) -> None:
        """The client takes more."""
        if self.connected:
            self.startReading()

    def stopProducing(self) -> None:
        """The client is gone."""
        self.close()

    def close(self) -> None:
        """Read no more."""
        if self.connected:
            self.connected = 0
            self.stopReading()
            os.close(self._program.output)
