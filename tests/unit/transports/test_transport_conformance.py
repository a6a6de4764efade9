"""transports.conformance, transports.read_conformance: the suite finds a transport that breaks a promise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from _pytest.outcomes import Failed

from transports.base import Capability, ReadFile
from transports.conformance import TransportSuite
from transports.decorators.passing import PassingTransport
from transports.errors import TransportError
from transports.memory import MemoryTransport
from transports.read_conformance import ReadSuite, populate


class ShortReads(PassingTransport):
    """Gives less than was asked for."""

    def open_read(self, path: str) -> ReadFile:
        file = super().open_read(path)
        whole = file.read_at
        file.read_at = lambda offset, size: whole(offset, min(size, 10))  # type: ignore[method-assign]
        return file


class CopyingRename(PassingTransport):
    """Leaves the old name."""

    def rename(self, source: str, target: str) -> None:
        content = self.inner.get(source)
        self.inner.rename(source, target)
        self.inner.put(source, [content])


class Unsorted(PassingTransport):
    """Lists names backwards."""

    def list_directory(self, path: str) -> list[str]:
        return super().list_directory(path)[::-1]


class ForgivingDelete(PassingTransport):
    """Says nothing when there was no such file."""

    def delete(self, path: str) -> None:
        if self.exists(path):
            super().delete(path)


class LockOfNothing(PassingTransport):
    """Says that it holds what another holds."""

    def try_lock(self, path: str) -> AbstractContextManager[bool]:
        return contextlib.nullcontext(True)


class BoastsOfNoLock(PassingTransport):
    """Says it has no lock, and has one."""

    def __init__(self) -> None:
        super().__init__(MemoryTransport())
        self.capabilities = Capability.NONE


def read_suite(name: str) -> Callable[[PassingTransport], object]:
    def run(transport: PassingTransport) -> object:
        populate(transport)
        return getattr(ReadSuite(), name)(transport)

    return run


def write_suite(name: str) -> Callable[[PassingTransport], object]:
    return lambda transport: getattr(TransportSuite(), name)(transport)


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (ShortReads, read_suite("test_read_at_any_place")),
        (Unsorted, read_suite("test_list_is_sorted")),
        (CopyingRename, write_suite("test_rename_replaces_a_file")),
        (CopyingRename, write_suite("test_rename_between_folders")),
        (ForgivingDelete, write_suite("test_delete")),
        (LockOfNothing, write_suite("test_try_lock_never_waits")),
    ],
)
def test_broken_promises_are_found(broken: type[PassingTransport], test: Callable[[PassingTransport], object]) -> None:
    test(PassingTransport(MemoryTransport()))
    with pytest.raises((AssertionError, Failed, TransportError)):
        test(broken(MemoryTransport()))


def test_lock_that_should_not_be_there_is_found() -> None:
    with pytest.raises((AssertionError, Failed)):
        TransportSuite().test_lock_excludes(BoastsOfNoLock())
    with pytest.raises((AssertionError, Failed)):
        TransportSuite().test_try_lock_never_waits(BoastsOfNoLock())
