"""`ChrootTransport`: a subtree that is all there is: errors name paths from its own root, no link leads out of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial

from transports.base import ReadFile, Stat, Transport, WriteFile
from transports.decorators.passing import PassingTransport
from transports.errors import PermissionDenied, TransportError
from transports.steps import Step

OUTSIDE = "it leads out of the tree"

Naming = Callable[[], AbstractContextManager[None]]
"""Within it errors name the path as the tree does."""


class _ReadInside(ReadFile):
    def __init__(self, file: ReadFile, naming: Naming) -> None:
        self._file = file
        self._naming = naming

    def read_at(self, offset: int, size: int) -> bytes:
        with self._naming():
            return self._file.read_at(offset, size)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        with self._naming():
            return self._file.read_ranges(ranges)

    def size(self) -> int:
        with self._naming():
            return self._file.size()

    def close(self) -> None:
        with self._naming():
            self._file.close()


class _WriteInside(WriteFile):
    def __init__(self, file: WriteFile, naming: Naming) -> None:
        self._file = file
        self._naming = naming

    def write(self, data: bytes | bytearray | memoryview) -> None:
        with self._naming():
            self._file.write(data)

    def sync(self) -> None:
        with self._naming():
            self._file.sync()

    def close(self) -> None:
        with self._naming():
            self._file.close()


class ChrootTransport(PassingTransport):
    """What lies below `path` of `inner`. Where each path really leads is asked before it is used, which on a store
    behind a link is a trip; a link that somebody makes in between is not seen.
    """

    def __init__(self, inner: Transport, path: str) -> None:
        super().__init__(inner.child(path))
        self._root = self.inner
        """The top of the subtree, for a child too."""

    def wrap(self, inner: Transport, prefix: str) -> ChrootTransport:
        made = ChrootTransport(inner, "")
        made.prefix, made._root = prefix, self._root
        return made

    @contextlib.contextmanager
    def _inside(self, *named: str) -> Iterator[None]:
        """Check that paths lead to no place outside, and let what goes wrong with them name them from here."""
        for path in named:
            self.real_path(path)
        with self._naming(*named):
            yield

    @contextlib.contextmanager
    def _naming(self, *named: str) -> Iterator[None]:
        """Let what goes wrong with these paths name them from here: the one it is about, else the first."""
        try:
            yield
        except TransportError as wrong:
            if outer := getattr(wrong, "path", ""):
                likely = (path for path in sorted(named, key=len, reverse=True) if f"/{outer}".endswith(f"/{path}"))
                wrong.path = self.full(next(likely, (*named, "")[0]))  # type: ignore[attr-defined]
            raise

    def real_path(self, path: str = "") -> str:
        """From the top of the subtree on.

        Raises:
            PermissionDenied: it leads out.
        """
        with self._naming(path):
            top, real = self._root.real_path(), self.inner.real_path(path)
        if real != top and not real.startswith(top.rstrip("/") + "/"):
            raise PermissionDenied(self.full(path), OUTSIDE)
        return real[len(top.rstrip("/")) :]

    def get(self, path: str) -> bytes:
        with self._inside(path):
            return self.inner.get(path)

    def open_read(self, path: str) -> ReadFile:
        with self._inside(path):
            return _ReadInside(self.inner.open_read(path), partial(self._naming, path))

    def create(self, path: str) -> WriteFile:
        with self._inside(path):
            return _WriteInside(self.inner.create(path), partial(self._naming, path))

    def append(self, path: str) -> WriteFile:
        with self._inside(path):
            return _WriteInside(self.inner.append(path), partial(self._naming, path))

    def rename(self, source: str, target: str) -> None:
        with self._inside(source, target):
            self.inner.rename(source, target)

    def delete(self, path: str) -> None:
        with self._inside(path):
            self.inner.delete(path)

    def make_directory(self, path: str) -> None:
        with self._inside(path):
            self.inner.make_directory(path)

    def remove_directory(self, path: str) -> None:
        with self._inside(path):
            self.inner.remove_directory(path)

    def list_directory(self, path: str) -> list[str]:
        with self._inside(path):
            return self.inner.list_directory(path)

    def stat(self, path: str) -> Stat:
        with self._inside(path):
            return self.inner.stat(path)

    def sync_directory(self, path: str) -> None:
        with self._inside(path):
            self.inner.sync_directory(path)

    @contextlib.contextmanager
    def lock(self, path: str, wait: float | None = None) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            with self._inside(path):
                held.enter_context(self.inner.lock(path, wait))
            yield

    @contextlib.contextmanager
    def try_lock(self, path: str) -> Iterator[bool]:
        with contextlib.ExitStack() as held:
            with self._inside(path):
                had = held.enter_context(self.inner.try_lock(path))
            yield had

    def perform(self, steps: Sequence[Step]) -> None:
        with self._inside(*(path for step in steps for path in step.paths)):
            self.inner.perform(steps)
