"""A fault at every call that changes storage: the repository is before or after, whole, and still works.

The store is near and has links, or it is behind a link and has none; there a record is published as a folder. For n =
1, 2, ... the n-th such call of an operation fails, tears, is lost or ends the process. Then the power is lost as well,
with each possible content of the disk.
"""

from __future__ import annotations

import functools
import hashlib
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest
from builders import MAIN, SETTINGS, Clock, Far, History, Repeatable, check_whole, push, refs_of, request_id
from copies import freeze, thaw
from faulty_transport import FaultMode, FaultyTransport
from memory_transport import Aftermath, MemoryTransport

from smartserver.errors import CorruptRecord, OutcomeUnknown
from smartserver.store import caches, checkpoint, open_pack, prune, repack, summarise
from smartserver.store.format import INCOMING
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from transports.base import Transport
from transports.errors import CodedError, TransportError

SIDE = b"refs/heads/side"
FEW = 8
"""Records after which a checkpoint is due here."""
MOST_PACKS = 4
"""Packs after which a repack is due here."""
PATH = "group/project"
DAY = 24 * 3600

State = dict[bytes, bytes] | None
"""Ref -> tip, and map and key -> value; None: there is no repository."""


@dataclass(frozen=True)
class Operation:
    """The preparation without faults, the operation with faults, and the refs after it."""

    prepare: Callable[[PackRepository, History, Clock], None]
    run: Callable[[PackRepository, History], object]
    after: Callable[[History], State]


def line(history: History, name: str, count: int, parent: bytes | None = None) -> list[bytes]:
    """Add commits that are the same each time for the same arguments."""
    return history.line(count, parent, name)


def nothing(_repository: PackRepository, _history: History, _clock: Clock) -> None:
    """Leave the repository missing."""


def three(repository: PackRepository, history: History, _clock: Clock) -> None:
    """Push three commits and two refs."""
    base = line(history, "base", 3)
    push(repository, history, base, {MAIN: base[2], SIDE: base[0]})


def many(repository: PackRepository, history: History, _clock: Clock) -> None:
    """Push so many packs that a repack is due."""
    for each in line(history, "base", MOST_PACKS + 1):
        push(repository, history, [each], {MAIN: each})


def few(repository: PackRepository, history: History, _clock: Clock) -> None:
    """Push three packs."""
    for each in line(history, "base", 3):
        push(repository, history, [each], {MAIN: each})


def configure(repository: PackRepository, _history: History) -> None:
    """Change a setting, which a state here shows as an entry."""

    def plan(transaction: Transaction) -> bytes:
        transaction.set_setting("HEAD", SIDE)
        return b""

    repository.commit(request_id(), 0, "user", plan)


def logged(repository: PackRepository, history: History, clock: Clock) -> None:
    """Make so many records over an old checkpoint that another is due, and older records are to be deleted."""
    (first,) = line(history, "base", 1)
    push(repository, history, [first], {MAIN: first})
    checkpoint.make_checkpoint(repository.folder, repository.log.look().state, repository.randomness)
    for number in range(FEW):
        push(repository, history, [], {SIDE: first if number % 2 else None, b"refs/tags/%d" % number: first})
    clock.now += checkpoint.FLOOR_AGE + 1


def tidy(repository: PackRepository, history: History) -> None:
    """Write a checkpoint, and delete the records that it makes useless."""
    refs_of(repository)
    repository.tidy()


def summarise_all(repository: PackRepository, history: History) -> None:
    """Write the summaries of all packs, from which a log is read."""
    refs_of(repository)
    repository.summarise()


def deleted(repository: PackRepository, history: History, clock: Clock) -> None:
    """Delete a repository."""
    three(repository, history, clock)
    delete(repository, history)


def joined(repository: PackRepository, history: History, clock: Clock) -> None:
    """Leave old packs that are due to be deleted."""
    many(repository, history, clock)
    assert repository.repack_if_needed()
    clock.now += DAY + 1


def forced(repository: PackRepository, history: History, clock: Clock) -> None:
    """Leave revisions that no ref reaches: part of a pack, and all of another. A later pack is based on the first."""
    base = line(history, "base", 3)
    beside = history.commit({**history.files(base[0]), "secret": b"hunter2\n"}, base[:1], "secret")
    push(repository, history, [base[0], beside, base[1]], {MAIN: base[1], b"refs/heads/wrong": beside})
    other = history.commit({**history.files(beside), "more": b"of it\n"}, (beside,), "more")
    push(repository, history, [other], {b"refs/heads/wrong": other})
    push(repository, history, base[2:], {MAIN: base[2], SIDE: base[0], b"refs/heads/wrong": None})


def bring(repository: PackRepository, history: History) -> None:
    new = line(history, "new", 2, line(history, "base", 3)[2])
    push(repository, history, new, {MAIN: new[1], b"refs/heads/new": new[0]}, graph_first=True)


def bring_much(repository: PackRepository, history: History) -> None:
    """Push a pack that is larger than the rest of the repository."""
    push(repository, history, [much(history)], {MAIN: much(history)})


def much(history: History) -> bytes:
    return history.commit({"much": random.Random(1).randbytes(1 << 20)}, line(history, "base", 3)[2:], "much")


def brought(history: History) -> State:
    base = line(history, "base", 3)
    new = line(history, "new", 2, base[2])
    return {MAIN: new[1], b"refs/heads/new": new[0], SIDE: base[0]}


def refuse(repository: PackRepository, history: History) -> None:
    """Push a broken body, which is refused."""
    new = line(history, "new", 2, line(history, "base", 3)[2])
    segment = history.segment(new[1])
    history._made[new[1]] = segment[:-1] + bytes((segment[-1] ^ 1,))
    try:
        push(repository, history, new, {MAIN: new[1]})
    except CorruptRecord:
        pass
    finally:
        history._made[new[1]] = segment


def bring_nothing(repository: PackRepository, history: History) -> None:
    """Create a repository, or recreate a deleted one."""
    push(repository, history, [])


def delete(repository: PackRepository, _history: History) -> None:
    """Delete the repository as a whole."""
    repository.delete(request_id(), 0, "user")


def three_refs(history: History) -> State:
    base = line(history, "base", 3)
    return {MAIN: base[2], SIDE: base[0]}


def many_refs(history: History) -> State:
    return {MAIN: line(history, "base", MOST_PACKS + 1)[-1]}


def noted(repository: PackRepository, history: History, clock: Clock) -> None:
    """Push three commits, and set entries of maps."""
    three(repository, history, clock)
    note(repository, b"1")


def note(repository: PackRepository, number: bytes, delete: bytes | None = None) -> None:
    """Set an entry that belongs to no ref, one of a ref, and a large one."""

    def plan(transaction: Transaction) -> bytes:
        transaction.set_map("notes", "opaque", number, number)
        transaction.set_map("config", "opaque", SIDE + b"\0" + number, number)
        transaction.set_map("config", "opaque", SIDE + b"\0", number * 65_536)
        if delete is not None:
            transaction.set_ref(delete, None)
            transaction.remove_entries(delete)
        return b""

    repository.commit(request_id(), 0, "user", plan)


def notes(*numbers: bytes) -> dict[bytes, bytes]:
    """Return the entries of the maps as `state_of` shows them."""
    kept = {key: each for each in numbers for key in (b"notes/" + each, b"config/" + SIDE + b"\0" + each)}
    return {**kept, b"config/" + SIDE + b"\0": numbers[-1] * 65_536}


OPERATIONS = {
    "create with content": Operation(
        nothing, lambda repository, history: three(repository, history, Clock()), three_refs
    ),
    "create empty": Operation(nothing, bring_nothing, lambda history: {}),
    "push": Operation(three, bring, brought),
    "push much": Operation(three, bring_much, lambda history: {MAIN: much(history), SIDE: line(history, "base", 3)[0]}),
    "refused push": Operation(three, refuse, three_refs),
    "move a ref": Operation(
        three,
        lambda repository, history: push(repository, history, [], {SIDE: line(history, "base", 3)[1]}),
        lambda history: {MAIN: line(history, "base", 3)[2], SIDE: line(history, "base", 3)[1]},
    ),
    "delete a ref": Operation(
        three,
        lambda repository, history: push(repository, history, [], {SIDE: None}),
        lambda history: {MAIN: line(history, "base", 3)[2]},
    ),
    "change maps": Operation(
        noted,
        lambda repository, history: note(repository, b"2"),
        lambda history: {**(three_refs(history) or {}), **notes(b"1", b"2")},
    ),
    "delete a ref and what belongs to it": Operation(
        noted,
        lambda repository, history: note(repository, b"2", SIDE),
        lambda history: {MAIN: line(history, "base", 3)[2], b"notes/1": b"1", b"notes/2": b"2"},
    ),
    "delete the repository": Operation(three, delete, lambda history: None),
    "repack": Operation(many, lambda repository, history: repository.repack_if_needed(), many_refs),
    "repack what is not due": Operation(
        few, lambda repository, history: repository.repack(), lambda history: {MAIN: line(history, "base", 3)[2]}
    ),
    "change settings": Operation(
        three, configure, lambda history: {**(three_refs(history) or {}), b"setting HEAD": SIDE}
    ),
    "recreate": Operation(deleted, bring_nothing, lambda history: {}),
    "checkpoint and clean": Operation(
        logged,
        tidy,
        lambda history: {
            MAIN: line(history, "base", 1)[0],
            SIDE: line(history, "base", 1)[0],
            **{b"refs/tags/%d" % number: line(history, "base", 1)[0] for number in range(FEW)},
        },
    ),
    "summarise": Operation(three, summarise_all, three_refs),
    "prune": Operation(forced, lambda repository, history: prune.prune(repository), three_refs),
    "collect": Operation(joined, lambda repository, history: repository.collect_garbage_files(), many_refs),
}


def state_of(repository: PackRepository) -> State:
    if not repository.exists():
        return None
    maps = repository.snapshot().state.maps
    entries = {f"{name}/".encode() + key: value for name, found in maps.items() for key, value in found.items()}
    settings = repository.snapshot().state.settings
    said = {f"setting {name}".encode(): value for name, value in settings.items() if value != SETTINGS.get(name)}
    hidden = prune.unreached(repository.snapshot()).ordinals
    return {**refs_of(repository), **entries, **said, **({b"unreached": b"%d" % len(hidden)} if hidden else {})}


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
        found = state_of(repository)
        if self.error is None:
            assert found == self.after, self
        else:
            assert found == self.before or (isinstance(self.error, OutcomeUnknown) and found == self.after), self
        if found is not None:
            check_whole(repository, self.history)
        self.clock.now += DAY + 1
        repository.collect_garbage_files()
        if found is not None:
            assert storage.list_directory(f"{PATH}/{INCOMING}") == [], self
        tip = (found or {}).get(MAIN)
        more = line(self.history, "more", 1, tip)
        push(repository, self.history, more, {MAIN: more[0]})
        assert state_of(repository) == {**(found or {}), MAIN: more[0]}, self
        check_whole(repository, self.history)
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


UPKEEP = {"repack", "repack what is not due", "checkpoint and clean", "summarise", "collect"}
"""The operations that no client waits for."""


@pytest.fixture(autouse=True)
def early_upkeep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "FEW", FEW)
    monkeypatch.setattr(repack, "MOST_PACKS", MOST_PACKS)
    monkeypatch.setattr(repack, "FEW_PACKS", MOST_PACKS // 2)
    for module in (open_pack, summarise):
        monkeypatch.setattr(module, "LEAST", 1)
    monkeypatch.setattr(caches.HEADERS, "limit", 0)  # Of packs of one name the cache takes each for the other.


def trials(store: str, name: str, mode: FaultMode) -> list[int]:
    """Count the calls of an operation without a fault, and return their numbers."""
    whole = Trial(store, name, mode, 0)
    assert whole.error is None
    assert state_of(whole.repository) == whole.after
    return list(range(1, whole.faulty.calls + 1))


ALIKE = {
    "near": {"push much"},
    "far": {
        "delete a ref", "change maps", "delete a ref and what belongs to it", "repack what is not due", "recreate",
        "collect", "summarise",
    },
}  # fmt: skip
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
