"""store.commit: nothing acknowledged is lost, against crashes, copies put back, stops and clocks."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from builders import MAIN, Clock, Far, History, Stepwise, check_whole, push, refs_of, request_id, upload
from calls import calls_of
from changes import change, files, push_each
from copies import freeze, thaw
from faulty_transport import FaultyTransport
from interrupted import Interrupted
from memory_transport import MemoryTransport

from smartserver.errors import MissingParents, OutcomeUnknown
from smartserver.records.model import Tip
from smartserver.store import checkpoint
from smartserver.store.commit import CommitOutcome
from smartserver.store.format import INCOMING, PACKS
from smartserver.store.record import record_path
from smartserver.store.repository import PackRepository
from smartserver.store.upkeep import KEPT
from smartserver.store.upload import Upload
from transports.base import Step, Transport
from transports.decorators.passing import PassingTransport
from transports.errors import CodedError, NoSuchFile, TransportFailed
from transports.steps import ListDirectory

SIDE = b"refs/heads/side"
DAY = KEPT


def repository_on(storage: Transport, clock: Clock) -> PackRepository:
    return PackRepository(storage, clock=clock)


def set_ref(repository: PackRepository, name: bytes, tip: bytes, sent: Upload | None = None) -> CommitOutcome:
    return change(repository, lambda made: made.set_ref(name, (Tip(tip),)), sent)


def put_back(storage: Transport, copy: dict[str, bytes]) -> None:
    """Put the copy in place of what is there, but for uploads."""
    for path in files(storage):
        if not path.startswith(INCOMING):
            storage.delete(path)
    for path, content in copy.items():
        storage.put(path, [content])


# -- a record that is not durable


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("what", ["a repeat", "a repeat that is asked for", "a push of nothing new"])
def test_what_is_acknowledged_of_another_process_is_durable(
    storage: MemoryTransport, history: History, clock: Clock, what: str, far: bool
) -> None:
    """That process died between the making of the record's name and the sync of its folder."""
    line = history.line(2)
    push(repository_on(storage, clock), history, line[:1], {MAIN: line[0]})
    request = request_id()
    calls, whole = 0, freeze(storage)
    for at in range(1, 100):
        tried = thaw(whole)
        dying = FaultyTransport(Far(tried) if far else tried, fail_at=at, mode="die")
        with contextlib.suppress(CodedError):
            push(repository_on(dying, clock), history, line[1:], {MAIN: line[1]}, request=request)
        if dying.calls < at:
            break
        if refs_of(repository_on(tried, clock)) != {MAIN: line[1]}:
            continue
        calls += 1
        # The client asks another server.
        other = repository_on(Far(tried) if far else tried, clock)
        if what == "a repeat":
            assert not push(other, history, line[1:], {MAIN: line[1]}, request=request, age=1000).changed
        elif what == "a repeat that is asked for":
            assert other.earlier(request, 1000) is not None
        else:
            assert not push(other, history, line[1:], {MAIN: line[1]}).changed
        assert refs_of(repository_on(tried.crash(), clock)) == {MAIN: line[1]}
    assert calls > 0


# -- a copy that is put back under a running server


def test_a_copy_put_back_while_a_push_is_on_its_way(
    repository: PackRepository, history: History, storage: MemoryTransport
) -> None:
    """The number of revisions is as before: only their ids tell the difference."""
    line = history.line(3)
    push(repository, history, line[:1], {MAIN: line[0]})
    copy = files(storage)
    push(repository, history, line[1:2], {MAIN: line[1]})
    sent = upload(repository, history.body(line[2:]), 1)
    put_back(storage, copy)
    (other,) = history.line(1, line[0], "other")
    push(repository, history, [other], {SIDE: other})
    with pytest.raises(MissingParents):
        set_ref(repository, MAIN, line[2], sent)
    assert refs_of(repository) == {MAIN: line[0], SIDE: other}
    check_whole(repository, history)


def test_a_repack_meanwhile_needs_no_second_check(
    repository: PackRepository, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packs that are joined, and joined again with others, have the same revisions."""
    line = history.line(8)
    push_each(repository, history, line[:4])
    checked = calls_of(monkeypatch, Upload, "check_again")
    sent = upload(repository, history.body(line[4:5]), 1)
    repository.repack()
    set_ref(repository, MAIN, line[4], sent)
    assert checked == []
    sent = upload(repository, history.body(line[5:6]), 1)
    for name in (b"refs/heads/one", b"refs/heads/two"):
        (other,) = history.line(1, line[0], name.decode())
        push(repository, history, [other], {name: other})
        repository.repack()
    set_ref(repository, MAIN, line[5], sent)
    assert checked == []
    assert repository.snapshot().state.ref(MAIN) == (Tip(line[5]),)
    check_whole(repository, history)


# -- a writer that is stopped


@pytest.mark.parametrize("moved", [True, False])
def test_a_writer_that_was_stopped_while_its_pack_was_swept(
    storage: MemoryTransport, history: History, clock: Clock, moved: bool
) -> None:
    """For two days, after its pack was moved or before: it gets the answer of another try, or is told so."""
    line = history.line(2)
    push(repository_on(storage, clock), history, line[:1], {MAIN: line[0]})
    request = request_id()

    def carry_out_and_sweep() -> None:
        other = repository_on(storage, clock)
        push(other, history, line[1:], {MAIN: line[1]}, request=request)
        for _ in range(2):  # The stopped one's pack is superseded: it is dropped, and a day later deleted.
            clock.now += DAY + 1
            other.collect_garbage_files()
        assert len(storage.list_directory(PACKS)) == 4

    stopped = Interrupted(storage, lambda call, path: path.endswith(".record"), carry_out_and_sweep)
    slow = repository_on(stopped if moved else storage, clock)
    if moved:
        assert not push(slow, history, line[1:], {MAIN: line[1]}, request=request).changed
    else:
        sent = upload(slow, history.body(line[1:]), 1)
        carry_out_and_sweep()
        with pytest.raises(NoSuchFile):
            set_ref(slow, SIDE, line[1], sent)
    check_whole(repository_on(storage, clock), history)
    assert refs_of(slow) == {MAIN: line[1]}
    assert len(storage.list_directory(PACKS)) == 4


def test_a_pack_that_went_after_it_was_moved_is_missed(
    storage: MemoryTransport, history: History, clock: Clock
) -> None:
    """A swept pack is never named: it is looked for after the state was read."""
    line = history.line(2)
    push(repository_on(storage, clock), history, line[:1], {MAIN: line[0]})
    there = set(storage.list_directory(PACKS))

    class Sweeping(Stepwise):
        def sync_directory(self, path: str) -> None:
            super().sync_directory(path)
            if path == PACKS:  # It was moved there just now.
                for name in set(storage.list_directory(PACKS)) - there:
                    storage.delete(f"{PACKS}/{name}")

    with pytest.raises(TransportFailed, match="deleted as abandoned while this process was stopped; try again"):
        push(repository_on(Sweeping(storage), clock), history, line[1:], {MAIN: line[1]})
    after = repository_on(storage, clock)
    assert refs_of(after) == {MAIN: line[0]}
    push(after, history, line[1:], {MAIN: line[1]})
    check_whole(after, history)
    assert storage.list_directory(INCOMING) == []


# -- clocks


@pytest.mark.parametrize("hours", [-1, 1, 26, 24 * 365])
def test_a_repeat_after_the_clock_was_set_overwrites_nothing(
    repository: PackRepository, history: History, clock: Clock, hours: int
) -> None:
    """The first one's answer was lost; somebody else has pushed since."""
    line = history.line(3)
    many = {b"refs/tags/%d" % number: line[0] for number in range(400)}
    push(repository, history, line[:1], {MAIN: line[0]})
    request = request_id()
    push(repository, history, line[1:2], {MAIN: line[1], **many}, request=request)
    clock.now += hours * 3600
    push(repository, history, line[2:], {MAIN: line[2]})
    for _ in range(3):
        push(repository, history, [], {b"refs/tags/%d" % number: line[1] for number in range(400)})
        push(repository, history, [], {b"refs/tags/%d" % number: line[0] for number in range(400)})
    again = push(repository, history, line[1:2], {MAIN: line[1], **many}, request=request, age=60_000)
    assert not again.changed
    assert refs_of(repository)[MAIN] == line[2]


def test_a_push_from_a_clock_in_the_future_stops_no_tidying(
    repository: PackRepository, history: History, clock: Clock, storage: MemoryTransport
) -> None:
    line = history.line(16)
    now = clock.now
    push_each(repository, history, line)
    clock.now = now + 3650 * DAY
    repository.repack()
    assert len(storage.list_directory(PACKS)) == 34
    clock.now = now + 60
    repository.collect_garbage_files()  # Their day begins with this.
    assert len(storage.list_directory(PACKS)) == 34
    clock.now = now + 2 * DAY
    repository.collect_garbage_files()
    assert len(storage.list_directory(PACKS)) == 2
    check_whole(repository, history)


# -- an answer of the store that is lost


class Losing(Stepwise):
    """The reply to a publication is lost, and some call after it fails."""

    def __init__(self, inner: Transport, after: int) -> None:
        super().__init__(inner)
        self.left, self.is_lost = [after], [False]

    def link(self, source: str, target: str) -> None:
        super().link(source, target)
        if not self.is_lost[0]:
            self.is_lost[0] = True
            raise TransportFailed(target, "the reply was lost")

    def before(self, call: str, path: str) -> None:
        self.left[0] -= self.is_lost[0]
        if self.is_lost[0] and self.left[0] == 0:
            raise TransportFailed(path, "it failed again")


@pytest.mark.parametrize("does", ["push", "repack"])
def test_what_was_published_is_kept_whatever_fails_then(does: str, storage: MemoryTransport, clock: Clock) -> None:
    """For each call after the lost reply. The pack is named by then: to delete it loses the repository."""
    at, over = 0, False
    while not over:
        at += 1
        storage, history = MemoryTransport(clock), History()
        line = history.line(4)
        push_each(repository_on(storage, clock), history, line[:3])
        losing = Losing(storage, at)
        repository, changed = repository_on(losing, clock), None
        with contextlib.suppress(OutcomeUnknown):
            if does == "push":
                changed = push(repository, history, line[3:], {MAIN: line[3]}).changed
            else:
                repository.repack()
        over = losing.left[0] > 0
        assert changed in ((True,) if over and does == "push" else (True, None)), at
        after = repository_on(storage, clock)
        assert refs_of(after) == {MAIN: line[3 if does == "push" else 2]}, at
        check_whole(after, history)
    assert at > 2


class Reconnecting(PassingTransport):
    """A store that is reached through another connection each time it is told so."""

    count = 0

    @property
    def connections(self) -> int:
        return Reconnecting.count


def test_another_connection_means_to_open_it_anew(
    storage: MemoryTransport, clock: Clock, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power failed between them, and a record that was deleted is there again: a change after it would be lost."""
    monkeypatch.setattr(checkpoint, "FEW", 2)
    monkeypatch.setattr(checkpoint, "FLOOR_AGE", 0)
    monkeypatch.setattr(Reconnecting, "count", 0)
    line, other = history.line(2), repository_on(storage, clock)
    idle = repository_on(Reconnecting(storage), clock)
    push(other, history, line, {MAIN: line[1]})
    path = record_path(idle.snapshot().state.version)
    kept = storage.get(path)
    for number in range(12):
        clock.now += 10
        set_ref(other, b"refs/heads/%d" % number, line[0])
        other.save_log()
    storage.put(path, [kept])
    Reconnecting.count += 1
    set_ref(idle, SIDE, line[1])
    assert SIDE in refs_of(repository_on(storage, clock))


class ListsLate(Far):
    """Lists folders after all else that is asked with it, and after something else happened."""

    def __init__(self, inner: Transport, meanwhile: list[Callable[[], object]], *, prefix: str = "") -> None:
        super().__init__(inner, prefix=prefix)
        self.meanwhile = meanwhile

    def wrap(self, inner: Transport, prefix: str) -> ListsLate:
        return ListsLate(inner, self.meanwhile, prefix=prefix)

    def perform(self, steps: Sequence[Step]) -> None:
        late = [step for step in steps if isinstance(step, ListDirectory)]
        for step in steps:
            if step not in late:
                step.do(self)
        if late and self.meanwhile:
            self.meanwhile.pop()()
        for step in late:
            step.do(self)


def test_a_folder_is_listed_after_its_files_were_asked_for(
    repository: PackRepository, storage: MemoryTransport, clock: Clock, history: History
) -> None:
    """A change in between is no damage."""
    line = history.line(3)
    push(repository, history, line[:2], {MAIN: line[1]})
    meanwhile: list[Callable[[], object]] = [lambda: push(repository, history, line[2:], {MAIN: line[2]})]
    far = repository_on(ListsLate(storage, meanwhile), clock)
    look = far.look()
    assert not meanwhile
    assert look.damage is None
    assert look.state.ref(MAIN) == (Tip(line[2]),)


def test_who_changes_nothing_is_told_the_state_of_the_record_that_others_share(
    storage: MemoryTransport, clock: Clock, history: History
) -> None:
    """While a first change is published three others wait; the second does what the first of them did."""
    gate, reached = threading.Event(), threading.Event()
    gate.set()

    class Slow(Stepwise):
        def before(self, call: str, path: str) -> None:
            if call == "link" and not gate.is_set():
                reached.set()
                gate.wait(60)

    repository, line = repository_on(Slow(storage), clock), history.line(2)
    push(repository, history, line, {MAIN: line[1]})
    gate.clear()
    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(set_ref, repository, b"refs/heads/first", line[0])]
        assert reached.wait(60)
        for count, name in enumerate((SIDE, SIDE, b"refs/heads/last"), 2):
            done.append(pool.submit(set_ref, repository, name, line[0]))
            while len(repository._group._waiting) < count:
                time.sleep(0.001)
        gate.set()
    assert [each.result().changed for each in done] == [True, True, False, True]
    now = repository.snapshot().state
    assert {(each.result().state.version, each.result().state.hash) for each in done[1:]} == {(now.version, now.hash)}
