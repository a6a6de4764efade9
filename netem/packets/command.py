"""A command that runs in a namespace, as seen by the process that uses the network."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import Protocol

from netem.packets.errors import PacketsError


class _Descriptor(Protocol):
    def fileno(self) -> int: ...


SIGNALS_EVERY = 200
"""The most milliseconds until a signal is handled while `wait` waits for a command."""


def readable(it: int | _Descriptor, wait: int = 0) -> bool:
    """Wait at most `wait` milliseconds until a read of the descriptor `it` would return at once. Return False after the
    timeout. Unlike select(2), this accepts descriptors from 1024 on."""
    poll = select.poll()
    poll.register(it, select.POLLIN)
    return bool(poll.poll(wait))


class Command:
    """A command that was started in a namespace."""

    def __init__(self, pid: int, status: int) -> None:
        """`status`: the reading end of the pipe to which the command's exit status is written."""
        self.pid = pid
        """The process id, which is also the id of its session and process group."""
        self._status = status
        self._ended: int | None = None

    def fileno(self) -> int:
        """Return a descriptor that is readable when the command has ended."""
        return self._status

    def ended(self) -> bool:
        """Tell whether the command has ended, so that `wait` returns at once."""
        return self._ended is not None or readable(self._status)

    def wait(self) -> int:
        """Wait for the end and return the exit status, or minus the number of the signal that ended the command."""
        if self._ended is None:
            # Python runs signal handlers between its own instructions. The handler of a signal that comes just before a
            # blocking read would run only after the read.
            while not readable(self._status, SIGNALS_EVERY):
                pass
            text = os.read(self._status, 64)
            if not text:
                raise PacketsError("the network ended while a command ran in it")
            self._ended = int(text)
        return self._ended

    def kill(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to the process group of the command. This does nothing after the command has ended."""
        if not self.ended():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def close(self) -> None:
        """Close the descriptor. The command keeps running."""
        descriptor, self._status = self._status, -1
        if descriptor >= 0:
            os.close(descriptor)
