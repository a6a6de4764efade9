"""The bytes that a connection has to send. The carrier, which is Twisted's transport, gets one slice at a time, and
none while it has enough to send. `unacknowledged` counts the bytes that the peer has not received yet, as far as this
machine knows."""

from __future__ import annotations

import array
import fcntl
import os
import stat
import termios
from collections import deque
from collections.abc import Callable
from typing import Protocol

from smartserver.wire.limits import INITIAL_WINDOW, PIECE

SLICE = PIECE + INITIAL_WINDOW
"""The most bytes that are passed to the carrier at a time: a piece of a body, and the frames that were held back to be
sent with it. TLS encrypts all of them at once, while no other connection is served."""


class Outbox:
    """The bytes that were not passed to the carrier yet."""

    def __init__(self) -> None:
        self.full = False
        """True while the carrier has enough to send."""
        self._unsent: deque[bytes | memoryview] = deque()

    def __bool__(self) -> bool:
        return bool(self._unsent)

    def add(self, content: bytes) -> None:
        """Append bytes."""
        self._unsent.append(content)

    def hand_over(self, write: Callable[[bytes], object]) -> int:
        """Write as many bytes to the carrier as it accepts now. Return their number."""
        handed = 0
        while self._unsent and not self.full:
            first = self._unsent.popleft()
            if len(first) > SLICE:
                view = memoryview(first)
                self._unsent.appendleft(view[SLICE:])
                first = view[:SLICE]
            handed += len(first)
            write(bytes(first))  # It may set `full`.
        return handed

    def clear(self) -> None:
        """Drop all bytes."""
        self._unsent.clear()


class Writer(Protocol):
    """The part of a Twisted descriptor that is used here."""

    dataBuffer: bytes
    offset: int
    _tempDataLen: int
    """Bytes that are not in `dataBuffer` yet."""

    def fileno(self) -> int:
        """Return the file descriptor; negative once it is closed."""


def unsent(writer: Writer) -> int:
    """Return the number of bytes that Twisted has not yet passed to the kernel."""
    return len(writer.dataBuffer) - writer.offset + writer._tempDataLen


def unacknowledged(writer: Writer | None) -> int:
    """Return the number of bytes that the peer has not acknowledged: those in Twisted and those in the kernel.

    While nothing is written, the number falls with each byte that the peer acknowledges. Twisted's unsent bytes alone
    would be too coarse: with `wire.limits.NOTSENT_LOWAT`, the kernel accepts bytes only once in 64 KiB.
    """
    return 0 if writer is None else unsent(writer) + in_kernel(writer.fileno())


def in_kernel(descriptor: int) -> int:
    """Return the number of unread bytes in a pipe, or of unacknowledged bytes in a socket's queue; 0 if it is
    unknown."""
    count = array.array("i", [0])
    try:
        # A socket answers FIONREAD too, with the number of received bytes.
        ask = termios.FIONREAD if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else termios.TIOCOUTQ
        fcntl.ioctl(descriptor, ask, count)
    except OSError:
        return 0
    return count[0]
