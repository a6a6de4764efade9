from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from builders import MAIN, Clock, History, Repeatable, check_whole, create, push, refs_of, request_id, upload
from changes import change, push_each
from counting import Counting
from memory_transport import MemoryTransport

from smartserver.errors import CorruptRecord, DivergedBranches, NoSuchRepository, OutcomeUnknown
from smartserver.meters import BYTES_WRITTEN, FILES_WRITTEN, SYNCS
from smartserver.records.model import Tip
from smartserver.store.checkpoint import make_checkpoint
from smartserver.store.commit import CommitOutcome
from smartserver.store.format import INCOMING, LOG, PACKS
from smartserver.store.record import record_path
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from transports.decorators.counted import CountedTransport

SIDE = b"refs/heads/side"


def another(storage: MemoryTransport, clock: Clock, seed: int = 1) -> PackRepository:
    """The same repository in another process."""
    return PackRepository(storage, clock=clock, randomness=Repeatable(seed))


# -- creation


def test_a_refused_creation_makes_no_repository(
    repository: PackRepository, history: History, storage: MemoryTransport
) -> None:
    """Folders of its place may stay, which the next creation takes over; no pack stays."""
    line = history.line(2)
    with pytest.raises(CorruptRecord):
        upload(repository, history.body(line)[:-1] + b"x", 2)

    def refuse(_transaction: Transaction) -> None:
        raise DivergedBranches(MAIN, line[0])

    with pytest.raises(DivergedBranches):
        push(repository, history, line, {MAIN: line[1]}, first=refuse)
    assert not repository.exists()
    assert storage.list_directory(INCOMING) == storage.list_directory(PACKS) == []
    with pytest.raises(DivergedBranches):
        push(PackRepository(storage, "other"), history, [], first=refuse)
    assert not storage.exists("other")
    push(repository, history, line, {MAIN: line[1]})
    check_whole(repository, history)


@pytest.mark.parametrize("brings", [True, False])
def test_folders_that_a_copy_left_out_are_made_again(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock, brings: bool
) -> None:
    """By the first change; record 1, which a clean-up deletes, is not."""
    line = history.line(1)
    push(repository, history, [])
    make_checkpoint(repository.folder, repository.log.look().state, repository.randomness)
    storage.delete(record_path(1))
    for folder in (INCOMING, PACKS):
        storage.remove_directory(folder)
    other = another(storage, clock)
    if brings:
        push(other, history, line, {MAIN: line[0]})
        check_whole(other, history)
    else:
        assert change(other, lambda made: made.set_setting("HEAD", SIDE)).changed
    assert storage.list_directory(LOG) == ["0000000002", "0000000003"]


# -- changes


def test_where_nothing_changes_nothing_is_written(history: History, clock: Clock) -> None:
    counted = CountedTransport(MemoryTransport())
    repository = PackRepository(counted, "p", clock=clock)
    line = history.line(2)
    push(repository, history, line, {MAIN: line[1]})
    counting = Counting()
    committed = push(repository, history, line, {MAIN: line[1], SIDE: None})
    assert not committed.changed
    assert committed.outcome == b"outcome of 2 revisions"
    assert counting[BYTES_WRITTEN] == counting[SYNCS] == 0
    assert committed.state.changes_since(None).version == 2


def test_what_a_push_costs(history: History, clock: Clock) -> None:
    counted = CountedTransport(MemoryTransport())
    repository = PackRepository(counted, "p", clock=clock)
    line = history.line(2)
    push(repository, history, line[:1], {MAIN: line[0]})
    repository.snapshot()
    counting = Counting()
    push(repository, history, line[1:], {MAIN: line[1]})
    # Pack, `packs`, the record, `log`; not a small index.
    assert (counting[SYNCS], counting[FILES_WRITTEN]) == (4, 3)
    counting = Counting()
    push(repository, history, [], {SIDE: line[0]})
    # The record, `log`.
    assert (counting[SYNCS], counting[FILES_WRITTEN]) == (2, 1)


# -- repeats


def test_a_repeated_creation_and_deletion(repository: PackRepository, history: History) -> None:
    line = history.line(1)
    request = request_id()
    push(repository, history, line, {MAIN: line[0]}, request=request)
    assert not push(repository, history, line, {MAIN: line[0]}, request=request, age=1).changed
    deletion = request_id()
    assert repository.delete(deletion, 0, "user").changed
    assert not repository.delete(deletion, 1, "user").changed
    # The creation was carried out before the repository was deleted: repeating it makes no new one.
    assert not push(repository, history, line, {MAIN: line[0]}, request=request, age=2).changed
    assert not repository.exists()


def test_a_request_older_than_the_entries_is_not_carried_out(
    repository: PackRepository, history: History, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smartserver.store.history.KEPT_ENTRIES", 1)
    line = history.line(2)
    push(repository, history, line[:1], {MAIN: line[0]})
    clock.now += 48 * 3600
    push(repository, history, [], {SIDE: line[0]})
    clock.now += 10
    day = 49 * 3600 * 1000
    with pytest.raises(OutcomeUnknown):
        push(repository, history, line[1:], {MAIN: line[1]}, age=day)
    with pytest.raises(OutcomeUnknown):
        repository.earlier(request_id(), day)
    assert refs_of(repository) == {MAIN: line[0], SIDE: line[0]}
    assert push(repository, history, line[1:], {MAIN: line[1]}, age=5000).changed


def test_a_repeat_that_lost_the_race_to_its_first_sending(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    """Both are past the first look at the log; the second finds the first's entry at the head."""
    line = history.line(2)
    push(repository, history, line[:1], {MAIN: line[0]})
    request = request_id()
    other = another(storage, clock)
    body = history.body(line[1:])
    calls: list[CommitOutcome] = []

    def plan(transaction: Transaction) -> bytes:
        if not calls:
            calls.append(push(other, history, line[1:], {MAIN: line[1]}, request=request))
        transaction.set_ref(MAIN, (Tip(line[1]),))
        return b"second"

    again = repository.commit(request, 10, "user", plan, upload(repository, body, 1))
    assert (again.changed, again.outcome) == (False, calls[0].outcome)
    assert repository.snapshot().state.version == 3
    assert storage.list_directory(INCOMING) == []
    check_whole(repository, history)
    assert len(storage.list_directory(PACKS)) == 4


# -- several writers


class Racing:
    """A plan that moves a ref forward; while it runs, `rivals` are first, one each time."""

    def __init__(self, ref: bytes, tip: bytes, *rivals: Callable[[], object]) -> None:
        self.ref, self.tip, self.rivals = ref, tip, list(rivals)
        self.runs = 0

    def __call__(self, transaction: Transaction) -> bytes:
        self.runs += 1
        if self.rivals:
            self.rivals.pop(0)()
        create(transaction)
        transaction.check_parents()
        old = transaction.ref(self.ref)
        if old is not None and not transaction.is_ancestor(old[0].id, self.tip):
            raise DivergedBranches(self.ref, old[0].id)
        transaction.set_ref(self.ref, (Tip(self.tip),))
        return b"run %d" % self.runs


def test_a_lost_race_may_be_refused(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    line = history.line(2)
    fork = history.line(1, line[0], "fork")
    push(repository, history, line[:1], {MAIN: line[0]})
    rival = another(storage, clock)
    plan = Racing(MAIN, fork[0], lambda: push(rival, history, line[1:], {MAIN: line[1]}))
    with pytest.raises(DivergedBranches):
        repository.commit(request_id(), 0, "user", plan, upload(repository, history.body(fork), 1))
    assert refs_of(repository) == {MAIN: line[1]}
    assert storage.list_directory(INCOMING) == []
    assert len(storage.list_directory(PACKS)) == 4
    check_whole(repository, history)


@pytest.mark.parametrize("rivals", [1, 2, 7])
def test_revisions_that_land_meanwhile_are_cut_out(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock, rivals: int
) -> None:
    """Each time the body was checked, another writer brings one revision more of it."""
    line = history.line(9)
    push(repository, history, line[:1], {MAIN: line[0]})
    rival = another(storage, clock)
    steps = [
        partial(push, rival, history, line[number : number + 1], {SIDE: line[number]})
        for number in range(1, rivals + 1)
    ]
    plan = Racing(MAIN, line[8], *steps)
    sent = upload(repository, history.body(line[1:]), 8)
    checks: set[int] = set()

    def progress(phase: str, done: int, total: int) -> None:
        if phase == "check again":
            checks.add(total)

    committed = repository.commit(request_id(), 0, "user", plan, sent, progress)
    assert committed.changed
    assert len(checks) == rivals
    snapshot = check_whole(repository, history)
    assert snapshot.graph.count == 9
    assert snapshot.state.packs[-1].segments == 8 - rivals
    assert storage.list_directory(INCOMING) == []
    assert len(storage.list_directory(PACKS)) == 2 * len(snapshot.packs)


def test_deleted_and_made_anew_meanwhile(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    line = history.line(3)
    push(repository, history, line[:2], {MAIN: line[1]})
    rival = another(storage, clock)

    def anew() -> None:
        rival.delete(request_id(), 0, "other")
        push(rival, history, line[:2], {MAIN: line[1]})

    plan = Racing(MAIN, line[2], anew)
    repository.commit(request_id(), 0, "user", plan, upload(repository, history.body(line[2:]), 1))
    assert refs_of(repository) == {MAIN: line[2]}
    check_whole(repository, history)


# -- deletion and damage


def test_deletion(repository: PackRepository, history: History) -> None:
    with pytest.raises(NoSuchRepository):
        repository.delete(request_id(), 0, "user")
    line = history.line(2)
    push(repository, history, line, {MAIN: line[1]})
    before = repository.snapshot()
    incarnation = before.state.incarnation
    repository.delete(request_id(), 0, "user")
    assert not repository.exists()
    with pytest.raises(NoSuchRepository):
        repository.snapshot()
    with pytest.raises(NoSuchRepository):
        repository.delete(request_id(), 0, "user")
    assert not repository.repack_if_needed()
    assert before.lookup(0, line[0]) == history.objects[line[0]]
    push(repository, history, line, {MAIN: line[0]})
    assert repository.snapshot().state.incarnation != incarnation
    check_whole(repository, history)


def test_packs_are_joined_when_somebody_asks(repository: PackRepository, history: History) -> None:
    line = history.line(4)
    push_each(repository, history, line[:3])
    told: list[tuple[int, int]] = []
    report = repository.repack(lambda done, total: told.append((done, total)))
    assert (report.before, report.after, told) == (3, 1, [(0, 3), (2, 3)])
    assert report.size == repository.snapshot().state.packs[0].length
    check_whole(repository, history)
    again = repository.repack()
    assert (again.before, again.after) == (1, 1)
    push(repository, history, line[3:], {MAIN: line[3]})
    assert len(repository.snapshot().packs) == 2


def test_pushes_that_come_meanwhile_are_not_waited_for(repository: PackRepository, history: History) -> None:
    line = history.line(9)
    push_each(repository, history, line[:2])
    left = line[2:]

    def another(done: int, total: int) -> None:
        each = left.pop(0)
        push(repository, history, [each], {MAIN: each})

    report = repository.repack(another)
    assert (report.before, report.after) == (2, 2)
    assert len(left) == 5
    check_whole(repository, history)
