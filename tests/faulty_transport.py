"""`FaultyTransport`: the n-th call that changes anything fails, for tests that try every n.

n = 1
while True:
    storage = MemoryTransport()
    faulty = FaultyTransport(storage, fail_at=n, mode="die")
    ...                        # do the work on `faulty`, look at what is left in `storage` or `storage.crash(...)`
    if faulty.calls < n:       # the work made fewer calls: every one of them has failed once
        break
    n += 1
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from transports.base import ReadFile, Stat, Transport, WriteFile
from transports.decorators.passing import PassingTransport
from transports.errors import TransportFailed

FaultMode = Literal["fail", "tear", "die", "lose"]
"""The fault at call n. `fail`: the call is not done. `tear`: a write writes the first half of its bytes, and any other
call is not done. `lose`: the call is done but reported as failed. `die`: neither this call nor a later one is done,
reads included: the process is dead. In all other modes later calls work."""

T = TypeVar("T")


class _Fuse:
    """The count of changing calls, shared by children and open files."""

    def __init__(self, fail_at: int, mode: FaultMode) -> None:
        self._mutex = threading.Lock()
        self._fail_at = fail_at
        self._mode: FaultMode = mode
        self._dead = False
        self.calls = 0
        self.log: list[str] = []

    def alive(self, path: str) -> None:
        if self._dead:
            raise TransportFailed(path, "injected fault: the process is dead")

    def change(self, what: str, path: str, do: Callable[[], T], half: Callable[[], object] | None = None) -> T:
        with self._mutex:
            self.alive(path)
            self.calls += 1
            self.log.append(f"{what} {path}")
            blown = self.calls == self._fail_at
            self._dead = blown and self._mode == "die"
        if not blown:
            return do()
        if self._mode == "lose":
            do()
        elif self._mode == "tear" and half is not None:
            half()
        raise TransportFailed(path, f"injected fault: {what}, call {self._fail_at}, {self._mode}")


class _FaultyReadFile(ReadFile):
    def __init__(self, inner: ReadFile, fuse: _Fuse, path: str) -> None:
        self._inner = inner
        self._fuse = fuse
        self._path = path

    def read_at(self, offset: int, size: int) -> bytes:
        self._fuse.alive(self._path)
        return self._inner.read_at(offset, size)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self._fuse.alive(self._path)
        return self._inner.read_ranges(ranges)

    def size(self) -> int:
        self._fuse.alive(self._path)
        return self._inner.size()

    def close(self) -> None:
        self._inner.close()


class _FaultyWriteFile(WriteFile):
    def __init__(self, inner: WriteFile, fuse: _Fuse, path: str) -> None:
        self._inner = inner
        self._fuse = fuse
        self._path = path

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        half = view[: len(view) // 2]
        self._fuse.change("write", self._path, lambda: self._inner.write(view), lambda: self._inner.write(half))

    def sync(self) -> None:
        self._fuse.change("sync", self._path, self._inner.sync)

    def close(self) -> None:
        self._inner.close()  # A dead process closes its files too.


class FaultyTransport(PassingTransport):
    """The tree of `inner`, until the changing call number `fail_at` of the whole tree fails; 0: none fails.

    `calls`: the number of changing calls. `log`: these calls, for the message of a failed test.
    """

    def __init__(
        self,
        inner: Transport,
        *,
        fail_at: int = 0,
        mode: FaultMode = "fail",
        prefix: str = "",
        _fuse: _Fuse | None = None,
    ) -> None:
        super().__init__(inner, prefix=prefix)
        self._fuse = _fuse if _fuse is not None else _Fuse(fail_at, mode)

    @property
    def calls(self) -> int:
        """The number of calls that change anything, the failed one included."""
        return self._fuse.calls

    @property
    def log(self) -> list[str]:
        """The changing calls, each as name and path."""
        return list(self._fuse.log)

    def wrap(self, inner: Transport, prefix: str) -> FaultyTransport:
        return FaultyTransport(inner, prefix=prefix, _fuse=self._fuse)

    def get(self, path: str) -> bytes:
        self._fuse.alive(self.full(path))
        return self.inner.get(path)

    def open_read(self, path: str) -> ReadFile:
        self._fuse.alive(self.full(path))
        return _FaultyReadFile(self.inner.open_read(path), self._fuse, self.full(path))

    def list_directory(self, path: str) -> list[str]:
        self._fuse.alive(self.full(path))
        return self.inner.list_directory(path)

    def stat(self, path: str) -> Stat:
        self._fuse.alive(self.full(path))
        return self.inner.stat(path)

    def create(self, path: str) -> WriteFile:
        file = self._fuse.change("create", self.full(path), lambda: self.inner.create(path))
        return _FaultyWriteFile(file, self._fuse, self.full(path))

    def append(self, path: str) -> WriteFile:
        self._fuse.alive(self.full(path))
        return _FaultyWriteFile(self.inner.append(path), self._fuse, self.full(path))

    def rename(self, source: str, target: str) -> None:
        self._fuse.change("rename", self.full(target), lambda: self.inner.rename(source, target))

    def link(self, source: str, target: str) -> None:
        self._fuse.change("link", self.full(target), lambda: self.inner.link(source, target))

    def delete(self, path: str) -> None:
        self._fuse.change("delete", self.full(path), lambda: self.inner.delete(path))

    def make_directory(self, path: str) -> None:
        self._fuse.change("make_directory", self.full(path), lambda: self.inner.make_directory(path))

    def remove_directory(self, path: str) -> None:
        self._fuse.change("remove_directory", self.full(path), lambda: self.inner.remove_directory(path))

    def sync_directory(self, path: str) -> None:
        self._fuse.change("sync_directory", self.full(path), lambda: self.inner.sync_directory(path))
