"""A fault at every system call on the local disk: the repository is before or after, as the answer says, and whole.

For n = 1, 2, ... the n-th call of an operation fails with an error of the system, or the process is killed before it.
"""

from __future__ import annotations

import errno
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from builders import MAIN, History, Repeatable, check_whole, push, refs_of, request_id

from smartserver.errors import OutcomeUnknown
from smartserver.store import checkpoint
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from transports import local
from transports.errors import CodedError, TransportError
from transports.local import LocalTransport

SIDE = b"refs/heads/side"
HISTORY = History()
LINE = HISTORY.line(6)

CALLS = {
    "open", "pread", "write", "fsync", "stat", "listdir", "replace", "link", "unlink", "mkdir", "rmdir",
}  # fmt: skip
"""The calls that may fail. An open descriptor's `fstat` and `close` are left out: they change nothing."""

State = tuple[dict[bytes, bytes], dict[str, bytes]] | None
"""Refs and settings; None: there is no repository."""


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


@dataclass(frozen=True)
class Operation:
    """An operation on a repository of three pushes, or on a missing one."""

    run: Callable[[PackRepository], object]
    empty: bool = False


def configure(repository: PackRepository) -> None:
    def plan(transaction: Transaction) -> bytes:
        transaction.set_setting("HEAD", SIDE)
        return b""

    repository.commit(request_id(), 0, "user", plan)


OPERATIONS = {
    "create": Operation(lambda repository: push(repository, HISTORY, LINE[:2], {MAIN: LINE[1]}), empty=True),
    "push": Operation(lambda repository: push(repository, HISTORY, LINE[3:], {MAIN: LINE[5]})),
    "branch": Operation(lambda repository: push(repository, HISTORY, [], {SIDE: LINE[0]})),
    "configure": Operation(configure),
    "repack": Operation(lambda repository: repository.repack()),
    "checkpoint": Operation(lambda repository: repository.tidy()),
    "delete": Operation(lambda repository: repository.delete(request_id(), 0, "user")),
}


def opened(folder: Path, seed: int) -> PackRepository:
    return PackRepository(LocalTransport(folder), "project", randomness=Repeatable(seed))


def state_of(repository: PackRepository) -> State:
    if not repository.exists():
        return None
    return refs_of(repository), dict(repository.snapshot().state.settings)


@pytest.fixture
def early_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "FEW", 2)


class Place:
    """A folder that is reset for each trial, and the operation to run there with a fault."""

    def __init__(self, folder: Path, operation: Operation) -> None:
        self.start, self.folder = folder / "start", folder / "tried"
        self.start.mkdir()
        self.run = operation.run
        if not operation.empty:
            before = opened(self.start, 1)
            for each in LINE[:3]:
                push(before, HISTORY, [each], {MAIN: each})
        self.before = state_of(opened(self.start, 1))
        self.reset()
        self.run(opened(self.folder, 2))
        self.after = state_of(opened(self.folder, 3))

    def reset(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.start, self.folder)

    def check(self, allowed: list[State], what: str) -> None:
        """Check that another process finds an allowed state, and can push."""
        other = opened(self.folder, 4)
        found = state_of(other)
        assert found in allowed, what
        if found is not None:
            check_whole(other, HISTORY)
        push(other, HISTORY, LINE, {MAIN: LINE[5], b"refs/heads/more": LINE[4]})
        check_whole(other, HISTORY)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, early_checkpoints: None) -> Place:
    return Place(tmp_path, OPERATIONS[request.param])


def faults(place: Place, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> Iterator[System]:
    """Reset the folder, and yield a system that acts at its n-th call, for n = 1, 2, ... until there is none."""
    at = 1
    while True:
        place.reset()
        system = System(at, act)
        with monkeypatch.context() as patched:
            patched.setattr(local, "os", system)
            yield system
        if system.count < at:
            return
        at += 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES], ids=errno.errorcode.__getitem__)
@pytest.mark.parametrize("place", OPERATIONS, indirect=True)
def test_a_call_that_fails(place: Place, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError(number, os.strerror(number))

    for system in faults(place, monkeypatch, fail):
        error: CodedError | None = None
        try:
            place.run(opened(place.folder, 5))
        except CodedError as wrong:
            error = wrong
        monkeypatch.setattr(local, "os", os)
        allowed = [place.after] if error is None else [place.before]
        if isinstance(error, OutcomeUnknown):
            allowed = [place.before, place.after]
        assert error is None or isinstance(error, TransportError | OutcomeUnknown), repr(error)
        place.check(allowed, f"call {system.count}, {system.log[-3:]}: {error!r}")


@pytest.mark.parametrize("place", OPERATIONS, indirect=True)
def test_a_process_that_is_killed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for system in faults(place, monkeypatch, lambda: os._exit(9)):
        child = os.fork()
        if child == 0:
            try:
                place.run(opened(place.folder, 5))
                system.count = -1
            finally:
                os._exit(0 if system.count == -1 else 1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        monkeypatch.setattr(local, "os", os)
        assert status in (0, 9)
        place.check([place.after] if status == 0 else [place.before, place.after], f"call {system._at}")
        if status == 9:
            system.count = system._at  # Counted in the child.
