"""What an older root that was put back took away is found again, and restored."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from builders import MAIN, Clock, History, Repeatable, check_whole, push, refs_of, request_id, upload
from smartserver.store.intent import Intent, encode_intent

from smartserver.records.model import Tip
from smartserver.store import recovery
from smartserver.store.format import LOG, LOST, PACKS, ROOT
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from smartserver.store.upkeep import UNNAMED_KEPT
from transports.memory import MemoryTransport

DAY = UNNAMED_KEPT
SIDE = b"refs/heads/side"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def storage(clock: Clock) -> MemoryTransport:
    return MemoryTransport(clock)


@pytest.fixture
def repository(storage: MemoryTransport, clock: Clock) -> PackRepository:
    return PackRepository(storage, clock=clock, randomness=Repeatable())


def put_back(storage: MemoryTransport, root: bytes) -> None:
    """What an operator does who has a backup of the root alone."""
    storage.put("root.backup", [root])
    storage.rename("root.backup", ROOT)


def restore(repository: PackRepository, *, every: bool = True) -> list[str]:
    """Restore, and why something, or a part of it, could not be."""
    recovery.put_back(repository.file)
    findings = recovery.find(repository.file)
    failed: list[str] = []
    chosen = findings.changes if every else recovery.by_default(findings)

    def note(what: str, why: str) -> None:
        failed.append(why)

    recovery.restore(repository, findings, chosen, note, note)
    return failed


def settle(repository: PackRepository, name: str, value: bytes) -> None:
    def plan(transaction: Transaction) -> bytes:
        transaction.set_setting(name, value)
        transaction.set_map("tags", "ids", b"v1", value)
        return b"settled"

    repository.commit(request_id(), 0, "user", plan)


def push_each(repository: PackRepository, history: History, revisions: Sequence[bytes]) -> None:
    """One push for each of these revisions."""
    for each in revisions:
        push(repository, history, [each], {MAIN: each})


def test_an_old_root_put_back_deletes_nothing(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    line = history.line(4)
    push(repository, history, line[:1], {MAIN: line[0]})
    root = storage.get(ROOT)
    push_each(repository, history, line[1:])
    push(repository, history, [], {SIDE: line[1]})
    clock.now += 3 * DAY
    put_back(storage, root)
    repository = PackRepository(storage, clock=clock)  # The server is started again.
    assert repository.collect_garbage_files() == 7
    assert len(storage.list_directory(LOST)) == 7
    assert refs_of(repository) == {MAIN: line[0]}
    report = repository.verify()
    assert (report.lost, len(report.problems)) == (4, 1)
    assert "that it does not know: 3 (smartserver recover" in report.problems[0]
    assert restore(repository) == []
    assert refs_of(repository) == {MAIN: line[3], SIDE: line[1]}
    report = repository.verify()
    assert (report.lost, report.problems) == (0, ())
    check_whole(repository, history)
    assert storage.list_directory(LOST) == []
    assert not recovery.find(repository.file)


def test_the_log_tells_of_it_at_the_next_start(
    repository: PackRepository, history: History, storage: MemoryTransport, caplog: pytest.LogCaptureFixture
) -> None:
    line = history.line(3)
    push(repository, history, line[:1], {MAIN: line[0]})
    root = storage.get(ROOT)
    push_each(repository, history, line[1:])
    repository.collect_garbage_files()
    assert caplog.messages == []
    put_back(storage, root)
    assert repository.collect_garbage_files() == 0
    (said,) = caplog.messages
    assert (
        "changes that were made and that its root does not know: 1; an older root was put back? smartserver recover"
        in said
    )


def test_what_is_lost_is_found_at_once(repository: PackRepository, history: History, storage: MemoryTransport) -> None:
    """Before any sweep; the last one of the changes may not have been acknowledged."""
    line = history.line(4)
    push(repository, history, line[:1], {MAIN: line[0]})
    root = storage.get(ROOT)
    push_each(repository, history, line[1:])
    incarnation = repository.file.read().incarnation
    put_back(storage, root)
    assert [each.made for each in recovery.find(repository.file).changes] == [True, True, False]
    assert restore(repository, every=False) == []
    assert refs_of(repository) == {MAIN: line[2]}
    assert repository.file.read().incarnation != incarnation
    (left,) = recovery.find(repository.file).changes
    assert [change.new for change in left.entry.changes][-1] is not None
    assert restore(repository) == []
    assert refs_of(repository) == {MAIN: line[3]}
    check_whole(repository, history)


def test_changes_without_a_pack(repository: PackRepository, history: History, storage: MemoryTransport) -> None:
    line = history.line(2)
    push(repository, history, line, {MAIN: line[1], SIDE: line[0]})
    root = storage.get(ROOT)
    push(repository, history, [], {SIDE: None})
    push(repository, history, [], {b"refs/heads/new": line[0]})
    settle(repository, "HEAD", SIDE)
    put_back(storage, root)
    assert restore(repository) == []
    assert refs_of(repository) == {MAIN: line[1], b"refs/heads/new": line[0]}
    assert repository.snapshot().state.settings["HEAD"] == SIDE
    assert dict(repository.snapshot().state.map("tags")) == {b"v1": SIDE}
    assert repository.snapshot().state.map_kind("tags") == "ids"


def test_a_repeat_of_a_restored_request_gets_its_first_answer(
    repository: PackRepository, history: History, storage: MemoryTransport
) -> None:
    line = history.line(2)
    push(repository, history, line[:1], {MAIN: line[0]})
    root = storage.get(ROOT)
    request = request_id()
    first = push(repository, history, line[1:], {MAIN: line[1]}, request=request)
    put_back(storage, root)
    assert restore(repository) == []
    again = push(repository, history, line[1:], {MAIN: line[1]}, request=request, age=1000)
    assert (again.outcome, again.changed) == (first.outcome, False)


def test_what_was_changed_since_is_not_overwritten(
    repository: PackRepository, history: History, storage: MemoryTransport
) -> None:
    line = history.line(3)
    push(repository, history, line[:1], {MAIN: line[0]})
    root = storage.get(ROOT)
    push(repository, history, line[1:2], {MAIN: line[1], SIDE: line[1]})
    push(repository, history, line[2:], {SIDE: line[2]})
    put_back(storage, root)
    (other,) = history.line(1, line[0], "other")
    push(repository, history, [other], {MAIN: other})
    first, second = (each.id for each in recovery.find(repository.file).changes)
    assert restore(repository) == [
        f"refs/heads/main was changed since; what it was to be is kept as refs/recovered/{first}/heads/main"
    ]
    assert refs_of(repository) == {
        MAIN: other,
        SIDE: line[2],
        b"refs/recovered/%b/heads/main" % first.encode(): line[1],
    }
    assert second
    assert not recovery.find(repository.file)
    check_whole(repository, history)


def test_a_deleted_repository_is_no_loss_of_the_next_one(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    line = history.line(2)
    push(repository, history, line, {MAIN: line[1]})
    for name in (b"refs/heads/a", b"refs/heads/b"):
        push(repository, history, [], {name: line[0]})
    repository.delete(request_id(), 0, "user")
    push(repository, history, line[:1], {MAIN: line[0]})
    assert (repository.verify().lost, repository.verify().problems) == (0, ())
    clock.now += 3 * DAY
    repository.collect_garbage_files()
    assert (repository.verify().lost, repository.verify().problems) == (0, ())
    assert recovery.by_default(recovery.find(repository.file)) == []


def test_folders_that_a_copy_left_out_are_made(
    repository: PackRepository, history: History, storage: MemoryTransport
) -> None:
    line = history.line(1)
    push(repository, history, line, {MAIN: line[0]})
    storage.remove_directory(LOG)
    repository.collect_garbage_files()
    push(repository, history, [], {SIDE: line[0]})
    assert refs_of(repository) == {MAIN: line[0], SIDE: line[0]}


def test_a_branch_that_was_pushed_on_since_has_what_it_lost(
    repository: PackRepository, history: History, storage: MemoryTransport
) -> None:
    line = history.line(4)
    push(repository, history, line[:1], {MAIN: line[0]})
    root = storage.get(ROOT)
    push_each(repository, history, line[1:3])
    put_back(storage, root)
    push(repository, history, line[1:], {MAIN: line[3]})
    assert len(recovery.find(repository.file).changes) == 2
    assert restore(repository) == []
    assert refs_of(repository) == {MAIN: line[3]}
    assert not recovery.find(repository.file)
    check_whole(repository, history)


def test_packs_that_were_joined_and_deleted_are_cut_out_again(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    line = history.line(20)
    push_each(repository, history, line[:5])
    root = storage.get(ROOT)
    push_each(repository, history, line[5:])
    repository.repack()
    clock.now += DAY + 1
    repository.collect_garbage_files()
    assert len(storage.list_directory(PACKS)) == 2
    put_back(storage, root)
    repository = PackRepository(storage, clock=clock)
    assert len(recovery.find(repository.file).gone) == 5
    assert restore(repository) == []
    assert refs_of(repository) == {MAIN: line[-1]}
    check_whole(repository, history)


def test_an_intent_is_kept_until_a_log_file_has_it(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    line = history.line(1)
    push(repository, history, line, {MAIN: line[0]})
    push(repository, history, [], {SIDE: line[0]})
    clock.now += 2 * DAY
    assert repository.collect_garbage_files() == 0
    assert len(storage.list_directory(LOG)) == 1
    for number in range(600):
        push(repository, history, [], {SIDE: line[0] if number % 2 else None})
    intents = len(storage.list_directory(LOG))
    assert repository.collect_garbage_files() > 200
    assert len(storage.list_directory(LOG)) < intents - 200
    assert refs_of(repository) == {MAIN: line[0], SIDE: line[0]}


def test_nothing_is_found_where_nothing_is_lost(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    line = history.line(20)
    for each in line:
        push(repository, history, [each], {MAIN: each})
        push(repository, history, [], {SIDE: each})
    repository.repack()
    assert not recovery.find(repository.file)
    clock.now += DAY + 1
    repository.collect_garbage_files()
    assert not recovery.find(repository.file)
    assert not storage.exists(LOST)
    assert repository.snapshot().state.ref(SIDE) == (Tip(line[-1]),)


def test_an_interrupted_recovery_goes_on_by_default(
    repository: PackRepository, history: History, storage: MemoryTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has given the repository another incarnation by then, which no intent knows."""
    line = history.line(5)
    push(repository, history, line[:1], {MAIN: line[0]})
    root = storage.get(ROOT)
    push_each(repository, history, line[1:])
    put_back(storage, root)

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(recovery, "_carry_out", stopped)
    with pytest.raises(KeyboardInterrupt):
        restore(repository)
    monkeypatch.undo()
    assert restore(repository, every=False) == []
    assert refs_of(repository) == {MAIN: line[3]}
    # And where that root is put back once more.
    put_back(storage, root)
    assert restore(repository, every=False) == []
    assert refs_of(repository) == {MAIN: line[3]}


def test_a_damaged_joined_pack_keeps_no_change_from_being_restored(
    repository: PackRepository, history: History, storage: MemoryTransport
) -> None:
    line = history.line(3)
    push(repository, history, line[:1], {MAIN: line[0]})
    root = storage.get(ROOT)
    push(repository, history, line[1:], {MAIN: line[2]})
    put_back(storage, root)
    junk = encode_intent(Intent(b"i" * 16, (), None, (b"a" * 16,)))
    storage.put(f"{PACKS}/{'ab' * 16}.pack", [b"no pack" + junk])
    (why,) = restore(repository)
    assert "ab" * 16 in why
    assert refs_of(repository) == {MAIN: line[2]}


def test_what_the_root_names_comes_back_from_lost(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    """An older root lay in place of it for a day."""
    line = history.line(3)
    push(repository, history, line[:1], {MAIN: line[0]})
    old = storage.get(ROOT)
    push(repository, history, line[1:], {MAIN: line[2], **{b"refs/tags/%d" % n: line[1] for n in range(900)}})
    new = storage.get(ROOT)
    put_back(storage, old)
    clock.now += DAY + 1
    repository = PackRepository(storage, clock=clock)
    assert repository.collect_garbage_files() == 4  # The pack, its index, a table and a log file.
    put_back(storage, new)
    repository = PackRepository(storage, clock=clock)
    assert recovery.put_back(repository.file) == 4
    assert recovery.put_back(repository.file) == 0
    assert refs_of(repository)[MAIN] == line[2]
    assert not recovery.find(repository.file)
    check_whole(repository, history)


def test_a_change_before_a_swap_of_upkeep_was_made(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    """The log of the root was empty then, and the version one further."""
    line = history.line(16)
    push_each(repository, history, line[:13])
    root = storage.get(ROOT)
    push(repository, history, line[13:14], {MAIN: line[13]})
    repository.repack()
    clock.now += DAY + 1
    repository.collect_garbage_files()
    assert repository.file.read().log == ()
    push_each(repository, history, line[14:])
    put_back(storage, root)
    assert [each.made for each in recovery.find(repository.file).changes] == [True, True, False]
    assert restore(repository, every=False) == []
    assert refs_of(repository) == {MAIN: line[14]}
    check_whole(repository, history)


def test_a_change_that_another_overtook_was_made(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    """Both were planned on the same root, and say so."""
    line = history.line(3)
    push(repository, history, line[:1], {MAIN: line[0]})
    root = storage.get(ROOT)
    other = PackRepository(storage, clock=clock, randomness=Repeatable(5))
    sent = upload(repository, history.body(line[1:2]), 1)

    def plan(transaction: Transaction) -> bytes:
        if not storage.exists("overtaken"):
            storage.put("overtaken", [b""])
            (side,) = history.line(1, line[0], "side")
            push(other, history, [side], {SIDE: side})
        transaction.set_ref(MAIN, (Tip(line[1]),))
        return b""

    repository.commit(request_id(), 0, "user", plan, sent)
    push(repository, history, line[2:], {MAIN: line[2]})
    put_back(storage, root)
    assert [each.made for each in recovery.find(repository.file).changes] == [True, True, False]


def test_a_log_file_that_is_gone_stops_nothing(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    line = history.line(2)
    push(repository, history, line, {b"refs/tags/%d" % n: line[0] for n in range(900)})
    push(repository, history, [], {MAIN: line[1]})
    (log,) = repository.file.read().log_files
    storage.delete(log.path)
    clock.now += DAY + 1
    assert repository.collect_garbage_files() == 0
    recovery.find(repository.file)
    assert refs_of(repository)[MAIN] == line[1]


def test_a_push_under_way_is_not_lost(repository: PackRepository, history: History, storage: MemoryTransport) -> None:
    line = history.line(2)
    push(repository, history, line[:1], {MAIN: line[0]})
    sent = upload(repository, history.body(line[1:]), 1)
    seen: list[int] = []

    def look(phase: str, done: int, total: int) -> None:
        seen.append(repository.verify().lost)

    def plan(transaction: Transaction) -> bytes:
        transaction.set_ref(MAIN, (Tip(line[1]),))
        return b""

    repository.commit(request_id(), 0, "user", plan, sent, look)
    assert seen == [0]
    assert repository.verify().lost == 0
