"""The bytes a connection has to send. The carrier gets a slice at a time, and none while it has enough.
`unacknowledged` says how many of them the peer has not taken yet, as far as this machine can tell."""

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
"""Bytes handed to the carrier at a time: a piece of a body, and what was held back to be sent with it. TLS encrypts all
of it at once, while no other connection is served."""


class Outbox:
    """The bytes that the carrier was not handed yet."""

    def __init__(self) -> None:
        self.full = False
        """True while the carrier has enough to send."""
        self._unsent: deque[bytes | memoryview] = deque()

    def __bool__(self) -> bool:
        return bool(self._unsent)

    def add(self, content: bytes) -> None:
        """Send this after what is there."""
        self._unsent.append(content)

    def hand_over(self, write: Callable[[bytes], object]) -> int:
        """Give the carrier what it takes now; how many bytes."""
        handed = 0
        while self._unsent and not self.full:
            first = self._unsent.popleft()
            if len(first) > SLICE:
                view = memoryview(first)
                self._unsent.appendleft(view[SLICE:])
                first = view[:SLICE]
            handed += len(first)
            write(bytes(first))  # Which may say that it has enough.
        return handed

    def clear(self) -> None:
        """Forget it."""
        self._unsent.clear()


class Writer(Protocol):
    """The part of a Twisted descriptor that sends."""

    dataBuffer: bytes
    offset: int
    _tempDataLen: int
    """Bytes that are not in `dataBuffer` yet."""

    def fileno(self) -> int:
        """Its descriptor; negative once it is closed."""


def unsent(writer: Writer) -> int:
    """Bytes the kernel has not taken from Twisted."""
    return len(writer.dataBuffer) - writer.offset + writer._tempDataLen


def unacknowledged(writer: Writer | None) -> int:
    """Bytes the kernel has not taken from Twisted, and those in the kernel that the peer has not taken from it.

    While nothing is written this only falls, and does for the least the peer takes. That the kernel takes more is too
    coarse a sign: with `wire.limits.NOTSENT_LOWAT` it does so once in 64 KiB.
    """
    return 0 if writer is None else unsent(writer) + in_kernel(writer.fileno())


def in_kernel(descriptor: int) -> int:
    """Bytes that lie in a pipe, or in a socket's queue until they are acknowledged; 0 where nothing tells."""
    count = array.array("i", [0])
    try:
        # A socket answers FIONREAD too, with what lies there to be read.
        ask = termios.FIONREAD if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else termios.TIOCOUTQ
        fcntl.ioctl(descriptor, ask, count)
    except OSError:
        return 0
    return count[0]
