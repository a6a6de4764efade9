"""store.log, store.commit.Group: what does not fit, a store that fails, and changes that wait or take turns."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import msgspec
import pytest
from builders import Clock
from calls import raising
from interrupted import Interrupted
from log_builders import begin_log, contents, judge, record_of, request
from memory_transport import MemoryTransport

from smartserver.errors import CorruptFile, OutcomeUnknown, Unsupported
from smartserver.store import commit, history, log
from smartserver.store.checkpoint import FLOOR_AGE, clean_log, make_checkpoint
from smartserver.store.commit import Group
from smartserver.store.format import LOG
from smartserver.store.log import Log, Turns
from smartserver.store.log_view import Head
from smartserver.store.record import HEADER, MAGIC, VERSION, Entry, Record, _hash, encode_record, record_path
from smartserver.store.state import State
from transports.base import Step, Transport
from transports.decorators.passing import PassingTransport
from transports.errors import FileExists, TransportFailed
from transports.steps import GetStat, Publish, SyncDirectory

NAMES = itertools.count()


def name(size: int) -> bytes:
    return next(NAMES).to_bytes(size, "big")


def opened(store: Transport, clock: Callable[[], float] = lambda: 0.0) -> Log:
    return Log(store, "r", name, clock)


def carry_out(log: Log, *numbers: int) -> Head:
    head = log.look()
    for number in numbers:
        head = log.append(head, partial(judge, number))
    return head


@pytest.fixture
def store() -> MemoryTransport:
    made = MemoryTransport()
    begin_log(made)
    return made


def checkpoint(store: Transport) -> str:
    """Make one; its path."""
    make_checkpoint(store, opened(store).look().state, name)
    return f"checkpoints/{store.list_directory('checkpoints')[-1]}"


@pytest.mark.parametrize("harm", ["cut", "of another log"])
def test_an_older_checkpoint_serves_for_one_that_is_damaged(harm: str, store: MemoryTransport) -> None:
    carry_out(opened(store), 1)
    checkpoint(store)
    carry_out(opened(store), 2)
    path = checkpoint(store)
    content = store.get(path)
    store.delete(path)
    if harm == "cut":
        store.put(path, [content[:-1]])
    else:
        store.put(f"{path[:-32]}{'ab' * 16}", [content])
    store.delete(record_path(1))
    assert contents(opened(store).look().state) == [1, 2]
    store.delete(record_path(2))  # That of the older one.
    with pytest.raises(CorruptFile, match="were deleted 3 times"):
        opened(store).look()


# -- what does not fit


def of_another_line(store: Transport) -> None:
    state = opened(store).look().state
    content = encode_record(Record(number=state.version + 1, parent=b"x" * 16, time=0))
    store.put(record_path(state.version + 1), [content])


def damaged(store: Transport) -> None:
    state = opened(store).look().state
    store.put(record_path(state.version + 1), [record_of(9, state)[0][:-1]])


def after_a_gap(store: Transport) -> None:
    carry_out(opened(store), 8, 9)
    store.delete(record_path(opened(store).look().state.version - 1))


def under_a_newer_checkpoint(store: Transport) -> None:
    carry_out(opened(store), 9)
    checkpoint(store)
    store.delete(record_path(opened(store).look().state.version))


@pytest.mark.parametrize("harm", [of_another_line, damaged, after_a_gap, under_a_newer_checkpoint])
def test_what_does_not_fit_stops_changes_but_not_reads(
    harm: Callable[[Transport], None], store: MemoryTransport
) -> None:
    log = opened(store)
    carry_out(log, 1, 2)
    harm(store)
    fresh = opened(store)
    head = fresh.look()
    assert contents(head.state) == [1, 2]
    assert head.damage
    before = store.list_directory(LOG)
    for _ in range(2):  # Also when it was seen before.
        with pytest.raises(CorruptFile, match="no change is made"):
            carry_out(fresh, 3)
    assert store.list_directory(LOG) == before
    if harm in (of_another_line, damaged):
        assert log.look().damage
        store.delete(record_path(4))
        assert contents(carry_out(log, 3).state) == contents(carry_out(fresh, 4).state)[:-1] == [1, 2, 3]


@pytest.mark.parametrize("left", [HEADER.size, HEADER.size + 1])
def test_a_newest_record_that_is_damaged_later(left: int, store: MemoryTransport) -> None:
    """No change follows it, not even by who has read it before: nobody else would see that."""
    log = opened(store)
    path = record_path(carry_out(log, 1, 2).state.version)
    content = store.get(path)
    store.delete(path)
    store.put(path, [content[:left], bytes(len(content) - left)])
    with pytest.raises(CorruptFile, match="no change is made"):
        carry_out(log, 3)
    assert contents(log.look().state) == [1]


def test_names_that_are_no_records_say_nothing(store: MemoryTransport) -> None:
    """A loss of power leaves empty folders of those that are published as folders."""
    log = opened(store)
    store.make_directory(record_path(carry_out(log, 1).state.version + 1))
    store.put(f"{LOG}/00000000000000099", [b"x"])
    fresh = opened(store)
    assert fresh.look().damage is None
    assert contents(carry_out(fresh, 2).state) == contents(log.look().state) == [1, 2]


def test_a_record_of_a_later_release_is_refused_by_its_feature(store: MemoryTransport) -> None:
    log = opened(store)
    state = carry_out(log, 1).state
    payload = msgspec.msgpack.encode((3, state.hash, ["trees"], 0))
    store.put(record_path(3), [HEADER.pack(MAGIC, VERSION, 0, _hash(payload)) + payload])
    with pytest.raises(Unsupported, match="trees"):
        log.look()


# -- a store that fails


def test_a_failed_sync_is_never_repeated(store: MemoryTransport) -> None:
    sync_failed = raising(TransportFailed(LOG, "sync failed"))
    for number in (1, 1):  # Nor is a repeat answered.
        failing = Interrupted(store, lambda call, path: call == "sync_directory", sync_failed)
        with pytest.raises(OutcomeUnknown, match="sync failed"):
            carry_out(opened(failing), number)
        carry_out(opened(store), number)


def test_others_are_first_again_and_again(store: MemoryTransport) -> None:
    numbers, now = itertools.count(100), [0.0]
    log = opened(store, lambda: now[0])

    def beaten(state: State) -> tuple[bytes, State]:
        now[0] += 7.0
        carry_out(opened(store), next(numbers))
        return record_of(1, state)

    with pytest.raises(TransportFailed, match="other processes changed the repository for 30 s"):
        log.append(log.look(), beaten)
    assert contents(opened(store).look().state) == [100, 101, 102, 103, 104]


class Grudging(PassingTransport):
    """A store that publishes a record and then says that the name is taken, or cannot be read: `then` happens."""

    then: Callable[[], None] = staticmethod(lambda: None)
    lost = False

    def publish(self, source: str, target: str) -> None:
        self.inner.publish(source, target)
        self.then()
        raise FileExists(target)

    def get_published(self, path: str) -> bytes:
        if self.lost:
            raise TransportFailed(path, "the store is gone")
        return self.inner.get_published(path)


def test_a_refusal_of_the_store_proves_nothing(store: MemoryTransport) -> None:
    assert contents(carry_out(opened(Grudging(store)), 1, 2).state) == [1, 2]
    grudging = Grudging(store)
    log = opened(grudging)
    head = log.look()
    grudging.then = lambda: damaged(store)
    with pytest.raises(OutcomeUnknown, match=r"first with change 4; then: .*log/0000000005"):
        log.append(head, partial(judge, 3))
    store.delete(record_path(5))
    head = log.look()
    grudging.then = lambda: setattr(grudging, "lost", True)
    with pytest.raises(OutcomeUnknown, match="the store is gone"):
        log.append(head, partial(judge, 4))
    assert contents(opened(store).look().state) == [1, 2, 3, 4]


def test_a_writer_that_slept_too_long_knows_nothing_for_certain(
    store: MemoryTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record came into a cleaned place, and the entries do not reach back to what it stood on."""
    monkeypatch.setattr(history, "KEPT_BYTES", 200)
    now = [0.0]
    store = MemoryTransport(clock=lambda: now[0])
    begin_log(store)
    frozen = opened(store)
    base = frozen.look()
    for number in range(10, 30):
        carry_out(opened(store), number)
        if number in (25, 29):
            now[0] += 2 * FLOOR_AGE
            checkpoint(store)
            clean_log(store, name)
    assert not store.exists(record_path(2))
    with pytest.raises(OutcomeUnknown, match="no longer has the changes since change 1"):
        frozen.append(base, partial(judge, 1))


class Sleeping(Clock):
    """Seconds that pass when it is told, or when somebody sleeps."""

    def __init__(self) -> None:
        super().__init__(5.0)
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_a_process_that_was_never_late_does_not_wait() -> None:
    clock = Sleeping()
    alone = Turns(clock, clock.sleep)
    for _ in range(3):
        alone.published()
        assert not alone.wait()
    assert clock.slept == []


@pytest.mark.parametrize(
    ("needed", "since", "slept"),
    [
        (0.25, 0.0, [0.25]),
        (0.25, 0.125, [0.125]),
        (9.0, 0.0, [1.0]),
        (0.25, 0.25, []),
        (0.25, log.REMEMBERED + 1, []),
    ],
)
def test_it_waits_as_long_as_it_needed(needed: float, since: float, slept: list[float]) -> None:
    """The turns of a process that was late, needed that many seconds, and published some seconds ago."""
    clock = Sleeping()
    found = Turns(clock, clock.sleep)
    found.retried(needed)
    found.published()
    clock.now += since
    assert found.wait() is bool(slept)
    assert clock.slept == slept


class Slow(PassingTransport):
    """A store of which each trip takes a second."""

    def __init__(self, inner: MemoryTransport, clock: Sleeping) -> None:
        super().__init__(inner)
        self.clock = clock

    def perform(self, steps: Sequence[Step]) -> None:
        self.clock.now += 1.0
        self.inner.perform(steps)


def test_what_a_lost_race_takes_is_measured_at_the_log() -> None:
    clock, store = Sleeping(), MemoryTransport()
    begin_log(store)
    names = itertools.count()
    own = Log(Slow(store, clock), "r", lambda size: next(names).to_bytes(size, "big"), clock)
    own.turns = Turns(clock, clock.sleep)
    other = Log(store, "r", lambda size: (1 << 32 | next(names)).to_bytes(size, "big"))
    seen = own.look()
    other.append(other.look(), lambda state: judge(1, state))
    own.append(seen, lambda state: judge(2, state))
    assert own.turns.wait()
    assert clock.slept == [log.LONGEST]


class Refused(Exception):
    pass


class Held(PassingTransport):
    """Holds the first publication until it is told to go on."""

    def __init__(self) -> None:
        super().__init__(MemoryTransport())
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.fails_sync = False
        self.looked: list[list[str]] = []

    def perform(self, steps: list[Step]) -> None:  # type: ignore[override]
        if all(isinstance(step, GetStat) for step in steps):
            self.looked.append([step.path for step in steps])
        if any(isinstance(step, Publish) for step in steps):
            self.reached.set()
            assert self.go_on.wait(60)
            if self.fails_sync and any(isinstance(step, SyncDirectory) for step in steps):
                self.inner.perform(steps[:3])
                raise TransportFailed("log", "it cannot be synced")
        self.inner.perform(steps)


class Scene:
    """A change that is being appended, and those that come meanwhile."""

    def __init__(self) -> None:
        self.store = Held()
        begin_log(self.store.inner)
        names = itertools.count()
        self.log = Log(self.store, "r", lambda size: next(names).to_bytes(size, "big"))
        self.group = Group(self.log, lambda: 1.0)
        self.judged: list[tuple[int, list[int]]] = []
        self._threads = ThreadPoolExecutor(32)
        self.first = self.come(0)
        assert self.store.reached.wait(60)

    def come(self, number: int, *, refused_after: int | None = None, size: int = 0) -> Future[Head]:
        def judge(state: State) -> Entry | None:
            there = contents(state)
            self.judged.append((number, there))
            if refused_after in there:
                raise Refused(f"{number} after {refused_after}")
            return None if number in there else Entry(request(number), "joe", bytes(size))

        before = len(self.group._waiting)
        come = self._threads.submit(self.group.append, self.log.look(), judge, lambda state: [GetStat(f"{number}")])
        while len(self.group._waiting) == before:
            pass
        return come

    def end(self) -> None:
        self.store.go_on.set()
        self._threads.shutdown()


def test_those_that_wait_are_one_record() -> None:
    scene = Scene()
    come = [scene.come(number) for number in range(1, 17)]
    twice = scene.come(16)
    late = scene.come(20, refused_after=3)
    scene.end()
    assert scene.first.result().state.version == 2
    assert {each.result().state.version for each in [*come, twice]} == {3}
    with pytest.raises(Refused, match="20 after 3"):
        late.result()
    assert contents(scene.log.look().state) == list(range(17))
    assert scene.store.looked == [["0"], [*map(str, range(1, 17)), "16", "20"]], "a trip for each record"
    assert scene.judged[5] == (5, [0, 1, 2, 3, 4]), "on what those before it leave"


def test_a_large_one_leaves_the_others_for_the_next_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "AT_MOST", 1000)
    scene = Scene()
    come = [scene.come(number, size=size) for number, size in ((1, 10), (2, 1000), (3, 10))]
    scene.end()
    assert [each.result().state.version for each in come] == [3, 3, 4]


def test_where_the_record_is_not_known_to_stand_nobody_is_answered() -> None:
    """Neither is who was refused because of what is in it."""
    scene = Scene()
    scene.store.fails_sync = True
    others = scene.come(1), scene.come(2, refused_after=1)
    scene.end()
    for each in (scene.first, *others):
        with pytest.raises(OutcomeUnknown):
            each.result()
