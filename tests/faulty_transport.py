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

from builders import Stepwise

from transports.base import ReadFile, Transport, WriteFile
from transports.errors import TransportFailed

FaultMode = Literal["fail", "tear", "die", "lose"]
"""The fault at call n. `fail`: the call is not done. `tear`: a write writes the first half of its bytes, and any other
call is not done. `lose`: the call is done but reported as failed. `die`: neither this call nor a later one is done,
reads included: the process is dead. In all other modes later calls work."""

READS = ("get", "open_read", "list_directory", "stat")
"""The calls that change nothing."""

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


class FaultyTransport(Stepwise):
    """The tree of `inner`, until the changing call number `fail_at` of the whole tree fails; 0: none fails.

    `calls`: the number of changing calls. `log`: these calls, for the message of a failed test.
    """

    def __init__(self, inner: Transport, *, fail_at: int = 0, mode: FaultMode = "fail") -> None:
        super().__init__(inner)
        self._fuse = _Fuse(fail_at, mode)

    @property
    def calls(self) -> int:
        """The number of calls that change anything, the failed one included."""
        return self._fuse.calls

    @property
    def log(self) -> list[str]:
        """The changing calls, each as name and path."""
        return list(self._fuse.log)

    def around(self, call: str, path: str, do: Callable[[], T]) -> T:
        if call not in READS:
            return self._fuse.change(call, path, do)
        self._fuse.alive(path)
        return do()

    def open_read(self, path: str) -> ReadFile:
        return _FaultyReadFile(super().open_read(path), self._fuse, self.full(path))

    def create(self, path: str) -> WriteFile:
        return _FaultyWriteFile(super().create(path), self._fuse, self.full(path))

    def append(self, path: str) -> WriteFile:
        self._fuse.alive(self.full(path))
        return _FaultyWriteFile(self.inner.append(path), self._fuse, self.full(path))
