"""`CountedTransport`: counts the calls of the inner transport in the calling thread's meters (`smartserver.meters`)."""

from __future__ import annotations

from collections.abc import Sequence

from smartserver.meters import (
    BYTES_READ,
    BYTES_WRITTEN,
    DELETIONS,
    FILES_READ,
    FILES_WRITTEN,
    LISTINGS,
    READS,
    RENAMES,
    SEEKS,
    STATS,
    SYNCS,
    WRITES,
    Index,
    here,
)
from transports.base import ReadFile, Stat, Step, WriteFile
from transports.decorators.passing import PassingTransport
from transports.steps import (
    Delete,
    Get,
    GetPublished,
    GetStat,
    ListDirectory,
    Publish,
    Put,
    ReadRanges,
    Rename,
    SyncDirectory,
    Withdraw,
)

_ONE_EACH: dict[type[Step], Index] = {
    Rename: RENAMES,
    Publish: RENAMES,
    Delete: DELETIONS,
    Withdraw: DELETIONS,
    ListDirectory: LISTINGS,
    GetStat: STATS,
    SyncDirectory: SYNCS,
}
"""The counter of each step that neither reads nor writes the content of a file."""


class _CountedReadFile(ReadFile):
    def __init__(self, inner: ReadFile) -> None:
        self._inner = inner
        self._next = 0
        """The offset at which the last read ended."""

    def read_at(self, offset: int, size: int) -> bytes:
        chunk = self._inner.read_at(offset, size)
        tally = here.tally
        tally[READS] += 1
        tally[BYTES_READ] += len(chunk)
        if offset != self._next:
            tally[SEEKS] += 1
        self._next = offset + len(chunk)
        return chunk

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        chunks = self._inner.read_ranges(ranges)
        self._next = _count_ranges(ranges, chunks, self._next)
        return chunks

    @property
    def descriptor(self) -> int | None:
        return self._inner.descriptor

    def size(self) -> int:
        return self._inner.size()

    def close(self) -> None:
        self._inner.close()


class _CountedWriteFile(WriteFile):
    def __init__(self, inner: WriteFile) -> None:
        self._inner = inner

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._inner.write(data)
        tally = here.tally
        tally[WRITES] += 1
        tally[BYTES_WRITTEN] += memoryview(data).nbytes

    def sync(self) -> None:
        self._inner.sync()
        here.tally[SYNCS] += 1

    def close(self) -> None:
        self._inner.close()


class CountedTransport(PassingTransport):
    """The files of `inner`. Only calls that succeed are counted."""

    def local_folder(self) -> str | None:
        return self.inner.local_folder()

    def get(self, path: str) -> bytes:
        content = self.inner.get(path)
        _count_whole(content)
        return content

    def open_read(self, path: str) -> ReadFile:
        file = self.inner.open_read(path)
        here.tally[FILES_READ] += 1
        return _CountedReadFile(file)

    def create(self, path: str) -> WriteFile:
        return _opened(self.inner.create(path))

    def append(self, path: str) -> WriteFile:
        return _opened(self.inner.append(path))

    def rename(self, source: str, target: str) -> None:
        self.inner.rename(source, target)
        here.tally[RENAMES] += 1

    def link(self, source: str, target: str) -> None:
        self.inner.link(source, target)
        here.tally[RENAMES] += 1

    def delete(self, path: str) -> None:
        self.inner.delete(path)
        here.tally[DELETIONS] += 1

    def remove_directory(self, path: str) -> None:
        self.inner.remove_directory(path)
        here.tally[DELETIONS] += 1

    def list_directory(self, path: str) -> list[str]:
        names = self.inner.list_directory(path)
        here.tally[LISTINGS] += 1
        return names

    def stat(self, path: str) -> Stat:
        found = self.inner.stat(path)
        here.tally[STATS] += 1
        return found

    def sync_directory(self, path: str) -> None:
        self.inner.sync_directory(path)
        here.tally[SYNCS] += 1

    def perform(self, steps: Sequence[Step]) -> None:
        """Perform the steps in one call. Count them only if all succeed, because an error does not tell which steps
        were performed."""
        self.inner.perform(steps)
        tally = here.tally
        for step in steps:
            match step:
                case Get() | GetPublished():
                    if step.result is not None:
                        _count_whole(step.result)
                case ReadRanges():
                    tally[FILES_READ] += 1
                    _count_ranges(step.ranges, step.result, 0)
                case Put():
                    tally[FILES_WRITTEN] += 1
                    tally[WRITES] += 1
                    tally[BYTES_WRITTEN] += len(step.content)
                    tally[SYNCS] += 1
                case _:
                    kind = _ONE_EACH.get(type(step))
                    if kind is not None:
                        tally[kind] += 1


def _opened(file: WriteFile) -> WriteFile:
    here.tally[FILES_WRITTEN] += 1
    return _CountedWriteFile(file)


def _count_whole(content: bytes) -> None:
    """Count a file that was read whole, in one read."""
    tally = here.tally
    tally[FILES_READ] += 1
    tally[READS] += 1
    tally[BYTES_READ] += len(content)


def _count_ranges(ranges: Sequence[tuple[int, int]], chunks: Sequence[bytes], at: int) -> int:
    """Count reads of ranges. `at`: where the previous read of the file ended. Return where the last range ended."""
    tally = here.tally
    tally[READS] += len(chunks)
    for (offset, _), chunk in zip(ranges, chunks, strict=True):
        tally[BYTES_READ] += len(chunk)
        if offset != at:
            tally[SEEKS] += 1
        at = offset + len(chunk)
    return at
