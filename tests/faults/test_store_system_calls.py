"""A fault at every system call on the local disk: the repository is before or after, as the answer says, and whole.

For n = 1, 2, ... the n-th call of an operation fails with an error of the system, or the process is killed before it.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import Clock, History, Repeatable
from operations import OPERATIONS, check_answer, check_next, state_of

from smartserver.errors import OutcomeUnknown
from smartserver.store.repository import PackRepository
from transports import local
from transports.errors import CodedError, TransportError
from transports.local import LocalTransport

CALLS = {
    "open", "pread", "write", "fsync", "stat", "listdir", "replace", "link", "unlink", "mkdir", "rmdir",
}  # fmt: skip
"""The calls that may fail. An open descriptor's `fstat` and `close` are left out: they change nothing."""


NAMES = ["create with content", "push", "move a ref", "repack", "checkpoint and clean", "delete the repository"]


class System:
    """The calls of `os`; an act is run before the n-th, and may raise in its place."""

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        self.count = 0
        self._at, self._act = at, act
        self.log: list[str] = []

    def __getattr__(self, name: str) -> object:
        found = getattr(os, name)
        return functools.partial(self._call, name, found) if name in CALLS else found

    def _call(self, name: str, call: Callable[..., object], *arguments: object, **named: object) -> object:
        self.count += 1
        self.log.append(name)
        if self.count == self._at:
            self._act()
        return call(*arguments, **named)


def opened(folder: Path, seed: int) -> PackRepository:
    return PackRepository(LocalTransport(folder), "project", randomness=Repeatable(seed))


class Place:
    """A folder that is reset for each trial, and the operation to run there with a fault."""

    def __init__(self, folder: Path, name: str) -> None:
        self._start, self.folder, self.history = folder / "start", folder / "tried", History()
        self._operation = OPERATIONS[name]
        self._start.mkdir()
        self._operation.prepare(opened(self._start, 1), self.history, Clock())
        self._before, self._after = state_of(opened(self._start, 1)), self._operation.after(self.history)

    def reset(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self._start, self.folder)

    def run(self) -> None:
        self._operation.run(opened(self.folder, 5), self.history)

    def check(self, error: CodedError | None, what: str) -> None:
        """Check that another process finds a state that the answer allows, and can push."""
        other = opened(self.folder, 4)
        check_next(other, self.history, check_answer(other, self.history, error, self._before, self._after, what), what)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, early_upkeep: None) -> Place:
    return Place(tmp_path, request.param)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES], ids=errno.errorcode.__getitem__)
@pytest.mark.parametrize("place", NAMES, indirect=True)
def test_a_call_that_fails(place: Place, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError(number, os.strerror(number))

    for at in itertools.count(1):
        place.reset()
        system, error = System(at, fail), None
        with monkeypatch.context() as patched:
            patched.setattr(local, "os", system)
            try:
                place.run()
            except CodedError as wrong:
                error = wrong
        assert error is None or isinstance(error, TransportError | OutcomeUnknown), repr(error)
        place.check(error, f"call {at}, {system.log[-3:]}: {error!r}")
        if system.count < at:
            return


@pytest.mark.parametrize("place", NAMES, indirect=True)
def test_a_process_that_is_killed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in itertools.count(1):
        place.reset()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                monkeypatch.setattr(local, "os", System(at, lambda: os._exit(9)))
                place.run()
                status = 0
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, 9)
        place.check(OutcomeUnknown("it was killed") if status else None, f"call {at}")
        if status == 0:
            assert at > 10
            return
