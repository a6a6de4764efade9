"""`CountedTransport`: counts what is asked of the transport inside. Safe to use from several threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from transports.base import ReadFile, Step, Transport, WriteFile
from transports.decorators.passing import PassingTransport
from transports.steps import Append, Get, Put, ReadRanges, SyncDirectory


@dataclass(frozen=True, slots=True)
class Counts:
    """What was asked of a transport; the difference of two is what was asked in between.

    Bytes of a mapped file are not counted: the system reads them when and if they are looked at.
    """

    files_opened: int = 0
    reads: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    syncs: int = 0

    def __sub__(self, earlier: Counts) -> Counts:
        return Counts(
            self.files_opened - earlier.files_opened,
            self.reads - earlier.reads,
            self.bytes_read - earlier.bytes_read,
            self.bytes_written - earlier.bytes_written,
            self.syncs - earlier.syncs,
        )

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.files_opened + other.files_opened,
            self.reads + other.reads,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            self.syncs + other.syncs,
        )


class _Tally:
    """What one thread asked. Only that thread writes to it, so nothing is locked."""

    __slots__ = ("bytes_read", "bytes_written", "files_opened", "reads", "syncs")

    def __init__(self) -> None:
        self.files_opened = 0
        self.reads = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.syncs = 0

    @property
    def counts(self) -> Counts:
        return Counts(self.files_opened, self.reads, self.bytes_read, self.bytes_written, self.syncs)


class _Meter(threading.local):
    """The calling thread's tally, so that a request that runs in one thread sees its own cost and no other's.

    `__init__` is run again in each thread, with the arguments of the first.
    """

    def __init__(self, tallies: list[_Tally]) -> None:
        self.here = _Tally()
        self.tallies = tallies
        tallies.append(self.here)  # Never removed: what a thread that ended asked for counts on.


class _CountedReadFile(ReadFile):
    def __init__(self, inner: ReadFile, meter: _Meter) -> None:
        self._inner = inner
        self._meter = meter

    def read_at(self, offset: int, size: int) -> bytes:
        chunk = self._inner.read_at(offset, size)
        here = self._meter.here
        here.reads += 1
        here.bytes_read += len(chunk)
        return chunk

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        chunks = self._inner.read_ranges(ranges)
        here = self._meter.here
        here.reads += len(chunks)
        here.bytes_read += sum(map(len, chunks))
        return chunks

    def size(self) -> int:
        return self._inner.size()

    def close(self) -> None:
        self._inner.close()


class _CountedWriteFile(WriteFile):
    def __init__(self, inner: WriteFile, meter: _Meter) -> None:
        self._inner = inner
        self._meter = meter

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._inner.write(data)
        self._meter.here.bytes_written += memoryview(data).nbytes

    def sync(self) -> None:
        self._inner.sync()
        self._meter.here.syncs += 1

    def close(self) -> None:
        self._inner.close()


class CountedTransport(PassingTransport):
    """The tree of `inner`; its children and open files count together."""

    def __init__(self, inner: Transport, *, prefix: str = "", _meter: _Meter | None = None) -> None:
        super().__init__(inner, prefix=prefix)
        self._meter = _meter if _meter is not None else _Meter([])

    @property
    def counts(self) -> Counts:
        """What was asked so far, by all threads."""
        return sum((tally.counts for tally in list(self._meter.tallies)), Counts())

    @property
    def thread_counts(self) -> Counts:
        """What this thread asked so far."""
        return self._meter.here.counts

    def wrap(self, inner: Transport, prefix: str) -> CountedTransport:
        return CountedTransport(inner, prefix=prefix, _meter=self._meter)

    def local_folder(self) -> str | None:
        return self.inner.local_folder()

    def get(self, path: str) -> bytes:
        content = self.inner.get(path)
        here = self._meter.here
        here.files_opened += 1
        here.reads += 1
        here.bytes_read += len(content)
        return content

    def open_read(self, path: str) -> ReadFile:
        file = self.inner.open_read(path)
        self._meter.here.files_opened += 1
        return _CountedReadFile(file, self._meter)

    def create(self, path: str) -> WriteFile:
        return self._opened(self.inner.create(path))

    def append(self, path: str) -> WriteFile:
        return self._opened(self.inner.append(path))

    def _opened(self, file: WriteFile) -> WriteFile:
        self._meter.here.files_opened += 1
        return _CountedWriteFile(file, self._meter)

    def sync_directory(self, path: str) -> None:
        self.inner.sync_directory(path)
        self._meter.here.syncs += 1

    def perform(self, steps: Sequence[Step]) -> None:
        """Together, and counted when all are done: of those that came before one that failed nobody knows which."""
        self.inner.perform(steps)
        here = self._meter.here
        for step in steps:
            match step:
                case Get() if step.result is not None:
                    here.files_opened += 1
                    here.reads += 1
                    here.bytes_read += len(step.result)
                case ReadRanges():
                    here.files_opened += 1
                    here.reads += len(step.result)
                    here.bytes_read += sum(map(len, step.result))
                case Put() | Append():
                    here.files_opened += 1
                    here.bytes_written += len(step.content)
                    here.syncs += 1
                case SyncDirectory():
                    here.syncs += 1
