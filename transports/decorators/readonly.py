"""`ReadonlyTransport`: what would change anything is `PermissionDenied`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from transports.base import WriteFile
from transports.decorators.passing import PassingTransport
from transports.errors import PermissionDenied
from transports.steps import Get, GetStat, ListDirectory, ReadRanges, Step

ASKS = (Get, ReadRanges, GetStat, ListDirectory)
"""Steps that change nothing."""


class ReadonlyTransport(PassingTransport):
    """The tree of `inner`, to read only; a lock makes its file, so there is none to hold either."""

    def create(self, path: str) -> WriteFile:
        raise PermissionDenied(self.full(path))

    def append(self, path: str) -> WriteFile:
        raise PermissionDenied(self.full(path))

    def rename(self, source: str, target: str) -> None:
        raise PermissionDenied(self.full(source))

    def delete(self, path: str) -> None:
        raise PermissionDenied(self.full(path))

    def make_directory(self, path: str) -> None:
        raise PermissionDenied(self.full(path))

    def remove_directory(self, path: str) -> None:
        raise PermissionDenied(self.full(path))

    def sync_directory(self, path: str) -> None:
        raise PermissionDenied(self.full(path))

    def lock(self, path: str, wait: float | None = None) -> AbstractContextManager[None]:
        raise PermissionDenied(self.full(path))

    def try_lock(self, path: str) -> AbstractContextManager[bool]:
        raise PermissionDenied(self.full(path))

    def perform(self, steps: Sequence[Step]) -> None:
        asked = next((at for at, step in enumerate(steps) if not isinstance(step, ASKS)), len(steps))
        self.inner.perform(steps[:asked])
        for step in steps[asked:]:  # The first of them is denied.
            step.do(self)
