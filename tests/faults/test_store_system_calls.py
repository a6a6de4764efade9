"""A fault at every system call on the local disk: the repository is before or after, as the answer says, and whole.

For n = 1, 2, ... the n-th call of an operation fails with an error of the system.
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


class System:
    """The calls of `os`, of which the n-th fails."""

    def __init__(self, at: int, number: int) -> None:
        self.count = 0
        self._at, self._number = at, number
        self.log: list[str] = []

    def __getattr__(self, name: str) -> object:
        found = getattr(os, name)
        return functools.partial(self._call, name, found) if name in CALLS else found

    def _call(self, name: str, call: Callable[..., object], *arguments: object, **named: object) -> object:
        self.count += 1
        self.log.append(name)
        if self.count == self._at:
            raise OSError(self._number, os.strerror(self._number))
        return call(*arguments, **named)


def opened(folder: Path, seed: int) -> PackRepository:
    return PackRepository(LocalTransport(folder), "project", randomness=Repeatable(seed))


@pytest.mark.usefixtures("early_upkeep")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES], ids=errno.errorcode.__getitem__)
@pytest.mark.parametrize(
    "name",
    ["create with content", "push", "move a ref", "repack", "checkpoint and clean", "delete the repository"],
)
def test_a_call_that_fails(name: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, folder, history, operation = tmp_path / "start", tmp_path / "tried", History(), OPERATIONS[name]
    start.mkdir()
    operation.prepare(opened(start, 1), history, Clock())
    before, after = state_of(opened(start, 1)), operation.after(history)
    for at in itertools.count(1):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(start, folder)
        system, error = System(at, number), None
        with monkeypatch.context() as patched:
            patched.setattr(local, "os", system)
            try:
                operation.run(opened(folder, 5), history)
            except CodedError as wrong:
                error = wrong
        assert error is None or isinstance(error, TransportError | OutcomeUnknown), repr(error)
        what = f"call {at}, {system.log[-3:]}: {error!r}"
        other = opened(folder, 4)
        check_next(other, history, check_answer(other, history, error, before, after, what), what)
        if system.count < at:
            return
