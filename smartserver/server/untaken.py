"""How much of what was said its peer has not taken yet, as far as this machine can tell."""

from __future__ import annotations

import array
import fcntl
import os
import stat
import termios
from typing import Protocol


class Writer(Protocol):
    """What is used of a Twisted descriptor that sends."""

    dataBuffer: bytes
    offset: int

    def fileno(self) -> int:
        """Its descriptor; negative once it is closed."""


def untaken(writer: Writer) -> int:
    """Bytes the kernel has not taken from Twisted, and those in the kernel that the peer has not taken from it.

    While nothing is written this only falls, and does for the least the peer takes. That the kernel takes more is too
    coarse a sign: with `wire.limits.NOTSENT_LOWAT` it does so once in 64 KiB.
    """
    return len(writer.dataBuffer) - writer.offset + in_kernel(writer.fileno())


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
