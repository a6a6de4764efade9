"""A command that runs in a namespace, as who started it holds it."""

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
"""Milliseconds after which a signal is handled at the latest while a command runs."""


def readable(it: int | _Descriptor, wait: int = 0) -> bool:
    """Say whether a read of a descriptor would return at once, after so many milliseconds at most; whatever its number
    (select(2) ends at 1024)."""
    poll = select.poll()
    poll.register(it, select.POLLIN)
    return bool(poll.poll(wait))


class Command:
    """A running command, until it has ended and its status was read."""

    def __init__(self, pid: int, status: int) -> None:
        """`status`: the reading end of a pipe that its exit status is written to."""
        self.pid = pid
        """The leader of its session and process group."""
        self._status = status
        self._ended: int | None = None

    def fileno(self) -> int:
        """Readable when it has ended."""
        return self._status

    def ended(self) -> bool:
        """True if it has ended: `wait` would return at once."""
        return self._ended is not None or readable(self._status)

    def wait(self) -> int:
        """Its exit status; negative: the signal that ended it."""
        if self._ended is None:
            # Python runs the handler of a signal between its own steps: of one that comes just before a read that waits
            # it would run it only after the read.
            while not readable(self._status, SIGNALS_EVERY):
                pass
            text = os.read(self._status, 64)
            if not text:
                raise PacketsError("the network ended while a command ran in it")
            self._ended = int(text)
        return self._ended

    def kill(self, number: int = signal.SIGTERM) -> None:
        """Signal the command and what it started in its group; after its end this does nothing."""
        if not self.ended():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def close(self) -> None:
        """Forget it; it goes on."""
        descriptor, self._status = self._status, -1
        if descriptor >= 0:
            os.close(descriptor)
