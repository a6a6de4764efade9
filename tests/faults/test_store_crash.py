"""A fault at every call that changes storage: the repository is before or after, whole, and still works.

The store is near and has links, or it is behind a link and has none; there a record is published as a folder. For n =
1, 2, ... the n-th such call of an operation fails, tears, is lost or ends the process. Then the power is lost as well,
with each possible content of the disk. On the local disk, each system call fails, or the process is killed before it,
and the repository is as the answer says.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import itertools
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from builders import Clock, Far, History, Repeatable
from copies import freeze, thaw
from faulty_transport import FaultMode, FaultyTransport
from memory_transport import Aftermath, MemoryTransport
from operations import OPERATIONS, State, check_answer, check_next, state_of

from smartserver.errors import OutcomeUnknown
from smartserver.store.format import INCOMING
from smartserver.store.repository import PackRepository
from transports import local
from transports.base import Transport
from transports.errors import CodedError, TransportError
from transports.local import LocalTransport

pytestmark = pytest.mark.usefixtures("early_upkeep")

PATH = "group/project"

Crash = tuple[Aftermath, int]
"""The content of the disk after a crash, and the seed where that is random."""


def crashes(seeds: int) -> list[Crash]:
    """Return each aftermath, and the random ones with several seeds."""
    chance = (Aftermath.TORN, Aftermath.SOME)
    return [(each, seed) for each in Aftermath for seed in range(seeds if each in chance else 1)]


STORES: dict[str, Callable[[Transport], Transport]] = {"near": lambda store: store, "far": Far}
"""Wraps a store in memory; the near one has links."""


@functools.cache
def prepared(store: str, name: str) -> tuple[History, bytes, State]:
    """Return the state before an operation: a history for all trials, frozen clock and storage, and `state_of`."""
    history, clock = History(), Clock()
    storage = MemoryTransport(clock=clock, links=store == "near")
    repository = PackRepository(STORES[store](storage), PATH, clock=clock, randomness=Repeatable(1))
    OPERATIONS[name].prepare(repository, history, clock)
    return history, freeze((clock, storage)), state_of(PackRepository(storage, PATH, clock=clock))


@dataclass
class Trial:
    """An operation with a fault at call `at`."""

    store: str
    name: str
    mode: FaultMode
    at: int

    def __post_init__(self) -> None:
        operation = OPERATIONS[self.name]
        self.history, start, self.before = prepared(self.store, self.name)
        self.clock, self.storage = thaw(start)
        self.after = operation.after(self.history)
        self.faulty = FaultyTransport(STORES[self.store](self.storage), fail_at=self.at, mode=self.mode)
        self.error: CodedError | None = None
        self.repository = PackRepository(self.faulty, PATH, clock=self.clock, randomness=Repeatable(2))
        try:
            operation.run(self.repository, self.history)
        except CodedError as error:
            self.error = error

    def __str__(self) -> str:
        return f"{self.mode} at call {self.at} ({self.faulty.log[-1]}): {self.error!r}"

    def check(self, repository: PackRepository, storage: MemoryTransport) -> None:
        """Check that the state is before or after, as the answer says, and whole, and that a next push works."""
        found = check_answer(repository, self.history, self.error, self.before, self.after, self)
        self.clock.now += 24 * 3600 + 1
        repository.collect_garbage_files()
        if found is not None:
            assert storage.list_directory(f"{PATH}/{INCOMING}") == [], self
        check_next(repository, self.history, found, self)
        assert found is not None or storage.list_directory("group") == ["project"], self

    def crash(self, crashes: Iterable[Crash], tried: set[bytes]) -> None:
        """Lose power in each way from the same moment, and check the rest. States in `tried` were checked before."""
        left = freeze((self.clock, self.storage))
        for aftermath, seed in crashes:
            self.clock, storage = thaw(left)
            found = storage.crash(aftermath, seed)
            look = hashlib.sha256(freeze((type(self.error), found))).digest()
            if look not in tried:
                tried.add(look)
                self.check(self.again(found), found)

    def again(self, storage: MemoryTransport) -> PackRepository:
        """Return the repository as another process sees it."""
        return PackRepository(STORES[self.store](storage), PATH, clock=self.clock, randomness=Repeatable(3))


UPKEEP = {"repack", "checkpoint and clean", "summarise", "collect"}
"""The operations that no client waits for."""


def trials(store: str, name: str, mode: FaultMode) -> list[int]:
    """Count the calls of an operation without a fault, and return their numbers."""
    whole = Trial(store, name, mode, 0)
    assert whole.error is None
    assert state_of(whole.repository) == whole.after
    return list(range(1, whole.faulty.calls + 1))


ALIKE = {
    "near": {"push much"},
    "far": {"delete a ref and what belongs to it", "recreate", "collect", "summarise"},
}
"""By store: the operations that are tried on the other store alone, because this one would show nothing more."""
EACH = [(store, name) for store in STORES for name in OPERATIONS if name not in ALIKE[store]]


# A call is not done; of a write also half: that is `tear`. `fail`: nothing of any.
@pytest.mark.parametrize(
    ("store", "name", "mode"),
    [*[(*each, mode) for each in EACH for mode in ("tear", "lose")], *[("near", name, "fail") for name in OPERATIONS]],
)
def test_a_call_that_fails(store: str, name: str, mode: FaultMode) -> None:
    for at in trials(store, name, mode):
        trial = Trial(store, name, mode, at)
        assert trial.error is None or isinstance(trial.error, TransportError | OutcomeUnknown), trial
        call = trial.faulty.log[at - 1]
        if name not in UPKEEP and call.startswith("sync") and not call.endswith((".record", ".folder")):
            assert trial.error is not None, trial  # A sync is not repeated; a record is written to another file.
        trial.check(trial.repository, trial.storage)


@pytest.mark.parametrize("mode", ["tear", "lose"])
@pytest.mark.parametrize(("store", "name"), EACH)
def test_a_call_that_fails_and_then_the_power(store: str, name: str, mode: FaultMode) -> None:
    tried: set[bytes] = set()
    for at in trials(store, name, mode):
        Trial(store, name, mode, at).crash([(Aftermath.DURABLE_ONLY, 0)], tried)


@pytest.mark.parametrize(("store", "name"), EACH)
def test_the_process_dies_and_the_power_goes(store: str, name: str) -> None:
    tried: set[bytes] = set()
    for at in trials(store, name, "die"):
        Trial(store, name, "die", at).crash(crashes(3), tried)


@pytest.mark.parametrize(("store", "name"), EACH)
def test_the_power_goes_after_the_answer(store: str, name: str) -> None:
    trial = Trial(store, name, "fail", 0)
    assert trial.error is None
    trial.crash(crashes(4), set())


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
def test_a_system_call_that_fails(place: Place, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
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
