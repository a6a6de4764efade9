"""Waits for file descriptors with `poll`, which accepts descriptors above 1,023, too, and is in a module that is loaded
anyway."""

from __future__ import annotations

import math
import select


def ready(read: int | None, write: int | None, timeout: float | None) -> tuple[bool, bool]:
    """Wait at most `timeout` seconds until the descriptor `read` is readable or `write` is writable; they may be the
    same. Return (readable, writable).

    A descriptor whose other end is closed counts as ready: the next read or write reports that.
    """
    asked = select.poll()
    if read is not None:
        asked.register(read, select.POLLIN)
    if write is not None:
        asked.register(write, select.POLLOUT | (select.POLLIN if write == read else 0))
    found = dict(asked.poll(None if timeout is None else math.ceil(timeout * 1000)))
    if any(what & select.POLLNVAL for what in found.values()):
        raise ValueError(f"expected open file descriptors, got {read} and {write}")
    gone = select.POLLHUP | select.POLLERR
    readable = read is not None and found.get(read, 0) & (select.POLLIN | gone)
    writable = write is not None and found.get(write, 0) & (select.POLLOUT | gone)
    return bool(readable), bool(writable)
