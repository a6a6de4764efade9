"""store.remote, store.repository: the connection to a remote store is lost at every call, reads included, also within a
group of steps. The repository still opens and verifies, and the reported outcome is true.

`test_store_crash.py` covers calls that change anything, and losses of power.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from builders import MAIN, Clock, Far, History, Repeatable, Stepwise, check_whole, push, refs_of, request_id
from memory_transport import MemoryTransport

from smartserver.errors import OutcomeUnknown
from smartserver.store.format import INCOMING
from smartserver.store.repository import PackRepository
from transports.base import ReadFile, Step, Transport
from transports.errors import CodedError, TransportError, TransportFailed

PATH = "project"
OTHER = b"refs/heads/other"
PACKS = 3
HISTORY = History()
LINE = HISTORY.line(PACKS + 2)
DAY = 24 * 3600

Refs = dict[bytes, bytes] | None
"""The refs; None: there is no repository."""

KEPT = {MAIN: LINE[PACKS - 1], OTHER: LINE[0]}


class Lost(Stepwise):
    """A store that loses its connection at call `at`: before the call is done, or (`done`) after it. The connection
    comes back at once, or (`away`) never."""

    def __init__(self, inner: Transport, at: int, *, done: bool, away: bool) -> None:
        super().__init__(inner)
        self.left = [at]
        """The number of calls left before the loss; a list, shared with transports below."""
        self._done, self._away = done, away

    def _falls(self, path: str) -> bool:
        """Count a call, and tell whether the connection is lost at it.

        Raises:
            TransportFailed: the connection was lost before.
        """
        self.left[0] -= 1
        if self._away and self.left[0] < 0:
            raise TransportFailed(path, "the connection is lost")
        return self.left[0] == 0

    def before(self, call: str, path: str) -> None:
        if self._falls(path):
            raise TransportFailed(path, "the connection is lost")

    def open_read(self, path: str) -> ReadFile:
        raise AssertionError(f"{path} is read piece by piece")

    def perform(self, steps: Sequence[Step]) -> None:
        for step in steps:
            falls = self._falls(self.full(step.path))
            if self._done or not falls:
                step.do(self.inner)
            if falls:
                raise TransportFailed(self.full(step.path), "the connection is lost")


@dataclass(frozen=True)
class Operation:
    """An operation on three pushes in three packs, or on a missing repository, with the refs before and after it."""

    run: Callable[[PackRepository], object]
    after: Refs
    before: Refs = None


def pull(repository: PackRepository, first: int) -> None:
    """Pull the revisions from the `first`th on."""
    snapshot = repository.snapshot()
    assert dict(snapshot.state.refs())
    reader = snapshot.read_ranges(((first, snapshot.graph.count),))
    pieces = iter(lambda: reader.read(1000), b"")
    assert b"".join(pieces) == HISTORY.body(LINE[first:PACKS])


def create(repository: PackRepository) -> None:
    push(repository, HISTORY, LINE[:3], {MAIN: LINE[2]})


OPERATIONS = {
    "new repository": Operation(create, {MAIN: LINE[2]}),
    "push": Operation(
        lambda repository: push(repository, HISTORY, LINE[PACKS:], {MAIN: LINE[-1]}), KEPT | {MAIN: LINE[-1]}, KEPT
    ),
    "new branch": Operation(
        lambda repository: push(repository, HISTORY, LINE[PACKS:], {b"refs/heads/new": LINE[-1]}, graph_first=True),
        KEPT | {b"refs/heads/new": LINE[-1]},
        KEPT,
    ),
    "pull": Operation(lambda repository: pull(repository, PACKS - 1), KEPT, KEPT),
    "clone": Operation(lambda repository: pull(repository, 0), KEPT, KEPT),
    "repack": Operation(lambda repository: repository.repack(), KEPT, KEPT),
    "delete a branch": Operation(
        lambda repository: push(repository, HISTORY, [], {OTHER: None}), {MAIN: KEPT[MAIN]}, KEPT
    ),
    "delete the repository": Operation(lambda repository: repository.delete(request_id(), 0, "user"), None, KEPT),
}


@functools.cache
def start(empty: bool) -> bytes:
    """Return the pickled clock and storage, from which each trial gets a copy."""
    clock = Clock()
    storage = MemoryTransport(clock=clock)
    if not empty:
        repository = PackRepository(Far(storage), PATH, clock=clock, randomness=Repeatable(1))
        for each in LINE[:PACKS]:
            push(repository, HISTORY, [each], {MAIN: each, **({OTHER: each} if each == LINE[0] else {})})
    return pickle.dumps((clock, storage))


def state_of(repository: PackRepository) -> Refs:
    return refs_of(repository) if repository.exists() else None


def lost(operation: Operation, at: int, *, done: bool, away: bool) -> bool:
    """Do an operation once with a loss at call `at`, and return whether it made so many calls."""
    clock, storage = pickle.loads(start(operation.before is None))
    store = Lost(Far(storage), at, done=done, away=away)
    mine = PackRepository(store, PATH, clock=clock, randomness=Repeatable(2))
    error: CodedError | None = None
    try:
        operation.run(mine)
    except CodedError as wrong:
        error = wrong
    before_that = store.left[0] > 0
    store.left[0] = 0
    assert error is None or not before_that, error
    what = f"lost at call {at}, done {done}, away {away}: {error!r}"
    near = PackRepository(Far(storage), PATH, clock=clock, randomness=Repeatable(3))
    found = state_of(near)
    if error is None:
        assert found == operation.after, what
    elif isinstance(error, OutcomeUnknown):
        assert found in (operation.before, operation.after), what
    else:
        assert isinstance(error, TransportError), what
        assert found == operation.before, what
    if found is not None:
        check_whole(near, HISTORY)
    goes_on = near if away else mine
    more = {MAIN: LINE[-1], b"refs/heads/more": LINE[0]}
    push(goes_on, HISTORY, LINE, more)
    assert state_of(near) == {**(found or {}), **more}, what
    check_whole(near, HISTORY)
    clock.now += DAY + 1
    goes_on.collect_garbage_files()
    assert storage.list_directory(f"{PATH}/{INCOMING}") == [], what
    return not before_that


@pytest.mark.parametrize("away", [False, True], ids=["back", "away"])
@pytest.mark.parametrize("done", [False, True], ids=["on the way there", "on the way back"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_at_every_call(name: str, done: bool, away: bool) -> None:
    at = 1
    while lost(OPERATIONS[name], at, done=done, away=away):
        at += 1
    assert at > 4
