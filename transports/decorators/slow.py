"""`SlowTransport`: every trip takes a while, as if the store were at the end of a link, and is counted."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

from transports.base import ReadFile, Stat, Transport, WriteFile
from transports.decorators.passing import PassingTransport
from transports.steps import Step


class _Link:
    """What is shared by children and open files."""

    def __init__(self, delay: float, sleep: Callable[[float], object]) -> None:
        self._delay = delay
        self._sleep = sleep
        self._made = itertools.count(1)  # Its `next` is one step for all threads.
        self.trips = 0

    def trip(self) -> None:
        self.trips = next(self._made)
        self._sleep(self._delay)


class _SlowReadFile(ReadFile):
    def __init__(self, inner: ReadFile, link: _Link) -> None:
        self._inner = inner
        self._link = link

    def read_at(self, offset: int, size: int) -> bytes:
        self._link.trip()
        return self._inner.read_at(offset, size)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self._link.trip()
        return self._inner.read_ranges(ranges)

    def size(self) -> int:
        self._link.trip()
        return self._inner.size()

    def close(self) -> None:
        self._inner.close()


class _SlowWriteFile(WriteFile):
    """What is written need not be waited for before `sync`."""

    def __init__(self, inner: WriteFile, link: _Link) -> None:
        self._inner = inner
        self._link = link

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._inner.write(data)

    def sync(self) -> None:
        self._link.trip()
        self._inner.sync()

    def close(self) -> None:
        self._inner.close()


class SlowTransport(PassingTransport):
    """The tree of `inner`, `delay` seconds away; `sleep` lets them pass. All steps of one `perform` are one trip, as is
    every call that waits for an answer.
    """

    def __init__(
        self,
        inner: Transport,
        delay: float,
        sleep: Callable[[float], object] = time.sleep,
        *,
        prefix: str = "",
        _link: _Link | None = None,
    ) -> None:
        super().__init__(inner, prefix=prefix)
        self._delay = delay
        self._sleep = sleep
        self._link = _link if _link is not None else _Link(delay, sleep)

    @property
    def trips(self) -> int:
        """How many there were, of children and open files too."""
        return self._link.trips

    def wrap(self, inner: Transport, prefix: str) -> SlowTransport:
        return SlowTransport(inner, self._delay, self._sleep, prefix=prefix, _link=self._link)

    def real_path(self, path: str = "") -> str:
        self._link.trip()
        return self.inner.real_path(path)

    def get(self, path: str) -> bytes:
        self._link.trip()
        return self.inner.get(path)

    def open_read(self, path: str) -> ReadFile:
        self._link.trip()
        return _SlowReadFile(self.inner.open_read(path), self._link)

    def create(self, path: str) -> WriteFile:
        self._link.trip()
        return _SlowWriteFile(self.inner.create(path), self._link)

    def append(self, path: str) -> WriteFile:
        self._link.trip()
        return _SlowWriteFile(self.inner.append(path), self._link)

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        self._link.trip()
        self.inner.put(path, chunks)

    def rename(self, source: str, target: str) -> None:
        self._link.trip()
        self.inner.rename(source, target)

    def delete(self, path: str) -> None:
        self._link.trip()
        self.inner.delete(path)

    def make_directory(self, path: str) -> None:
        self._link.trip()
        self.inner.make_directory(path)

    def remove_directory(self, path: str) -> None:
        self._link.trip()
        self.inner.remove_directory(path)

    def list_directory(self, path: str) -> list[str]:
        self._link.trip()
        return self.inner.list_directory(path)

    def stat(self, path: str) -> Stat:
        self._link.trip()
        return self.inner.stat(path)

    def sync_directory(self, path: str) -> None:
        self._link.trip()
        self.inner.sync_directory(path)

    def lock(self, path: str, wait: float | None = None) -> AbstractContextManager[None]:
        self._link.trip()
        return self.inner.lock(path, wait)

    def try_lock(self, path: str) -> AbstractContextManager[bool]:
        self._link.trip()
        return self.inner.try_lock(path)

    def perform(self, steps: Sequence[Step]) -> None:
        if steps:
            self._link.trip()
        self.inner.perform(steps)
