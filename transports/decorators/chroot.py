"""`ChrootTransport`: a subtree that is all there is: errors name paths from its own root, no link leads out of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from transports.base import ReadFile, Stat, Transport, WriteFile
from transports.decorators.passing import PassingTransport
from transports.errors import PermissionDenied, TransportError
from transports.steps import Rename, Step

OUTSIDE = "it leads out of the tree"


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
        try:
            yield
        except TransportError as wrong:
            outer = getattr(wrong, "path", "")
            for path in sorted(named, key=len, reverse=True):
                if outer == path or outer.endswith(f"/{path}") or not path:
                    wrong.path = self.full(path)  # type: ignore[attr-defined]
                    break
            raise

    def real_path(self, path: str = "") -> str:
        """From the top of the subtree on.

        Raises:
            PermissionDenied: it leads out.
        """
        top, real = self._root.real_path(), self.inner.real_path(path)
        if real != top and not real.startswith(top.rstrip("/") + "/"):
            raise PermissionDenied(self.full(path), OUTSIDE)
        return real[len(top.rstrip("/")) :]

    def get(self, path: str) -> bytes:
        with self._inside(path):
            return self.inner.get(path)

    def open_read(self, path: str) -> ReadFile:
        with self._inside(path):
            return self.inner.open_read(path)

    def map_file(self, path: str) -> memoryview:
        with self._inside(path):
            return self.inner.map_file(path)

    def create(self, path: str) -> WriteFile:
        with self._inside(path):
            return self.inner.create(path)

    def append(self, path: str) -> WriteFile:
        with self._inside(path):
            return self.inner.append(path)

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
        named = [path for step in steps for path in (step.path, *([step.target] if isinstance(step, Rename) else []))]
        with self._inside(*named):
            self.inner.perform(steps)
