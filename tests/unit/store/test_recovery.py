"""smartserver.store.lost and recovery: a log goes on after any damage, and what it lacks is found and restored."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from builders import MAIN, Clock, History, Repeatable, check_whole, push, refs_of, request_id
from changes import change, push_each, replace
from copies import freeze, thaw
from faulty_transport import FaultyTransport
from memory_transport import Aftermath, MemoryTransport

from smartserver.errors import CorruptFile, NoSuchRepository
from smartserver.store import recovery
from smartserver.store.checkpoint import clean_log, make_checkpoint
from smartserver.store.format import CHECKPOINTS, FORMAT, LOG, LOST, PACKS
from smartserver.store.lost import find
from smartserver.store.record import record_path
from smartserver.store.repository import PackRepository
from smartserver.store.state import beginning
from smartserver.store.trailer import Trailer, encode_trailer
from smartserver.store.upkeep import KEPT
from transports.base import Transport
from transports.errors import CodedError, TransportError

SIDE = b"refs/heads/side"


def again(storage: Transport, clock: Callable[[], float]) -> PackRepository:
    """The server is started again."""
    return PackRepository(storage, clock=clock, randomness=Repeatable(1))


def restore(repository: PackRepository, *, every: bool = True) -> list[str]:
    """Restore, and why something, or a part of it, could not be."""
    findings = find(repository.folder)
    failed: list[str] = []
    chosen = findings.changes if every else findings.made

    def note(what: str, why: str) -> None:
        failed.append(why)

    recovery.restore(repository, findings, chosen, note, note)
    return failed


def put_back(storage: MemoryTransport, newest: int = 2) -> None:
    """An operator exchanges the log alone for one of a backup; `newest`: its last record."""
    for name in storage.list_directory(LOG):
        if int(name) > newest:
            storage.delete(f"{LOG}/{name}")


def checkpoint(repository: PackRepository) -> None:
    make_checkpoint(repository.folder, repository.snapshot().state, repository.randomness)


# -- damage of the log


def damage_record(repository: PackRepository, storage: MemoryTransport) -> None:
    path = record_path(5)
    replace(storage, path, storage.get(path)[:-1])


def take_log(repository: PackRepository, storage: MemoryTransport) -> None:
    checkpoint(repository)
    put_back(storage, 0)
    storage.remove_directory(LOG)


def older_log(repository: PackRepository, storage: MemoryTransport) -> None:
    checkpoint(repository)
    put_back(storage, 3)


def take_both(repository: PackRepository, storage: MemoryTransport) -> None:
    put_back(storage, 0)
    storage.delete(FORMAT)


def take_below(repository: PackRepository, storage: MemoryTransport) -> None:
    checkpoint(repository)
    storage.delete(record_path(5))


def damage_newest(repository: PackRepository, storage: MemoryTransport) -> None:
    checkpoint(repository)
    replace(storage, record_path(7), b"cut")


Harm = Callable[[PackRepository, MemoryTransport], None]
FOREIGN, _ = beginning(b"x" * 16, 0)
DAMAGES: dict[str, Harm] = {
    "a record is damaged": damage_record,
    "a record is gone": lambda _, storage: storage.delete(record_path(5)),
    "a record is of another copy": lambda _, storage: replace(storage, record_path(5), FOREIGN),
    "no log": take_log,
    "an older log": older_log,
    "no checkpoints": lambda _, storage: storage.remove_directory(CHECKPOINTS),
    "no format": lambda _, storage: storage.delete(FORMAT),
    "neither": take_both,
    "a record below a checkpoint is gone": take_below,
    "that of a checkpoint is damaged": damage_newest,
}


@pytest.fixture
def line(repository: PackRepository, history: History) -> list[bytes]:
    """Records 2 to 6 bring them, and record 7 only moves a ref."""
    line = history.line(5)
    push_each(repository, history, line)
    push(repository, history, [], {SIDE: line[0]})
    return line


@pytest.mark.parametrize("harm", DAMAGES.values(), ids=DAMAGES)
def test_after_damage_of_the_log_all_is_there(
    harm: Harm,
    repository: PackRepository,
    history: History,
    line: list[bytes],
    storage: MemoryTransport,
    clock: Clock,
) -> None:
    known = repository.snapshot().state
    harm(repository, storage)
    assert restore(again(storage, clock)) == []
    recovered = again(storage, clock)
    side = {} if harm is take_both else {SIDE: line[0]}  # Only a record has it.
    assert refs_of(recovered) == {MAIN: line[4], **side}
    check_whole(recovered, history)
    assert (recovered.verify().lost, recovered.verify().problems) == (0, ())
    assert not find(storage)
    assert recovered.snapshot().state.incarnation != known.incarnation
    new = history.line(1, line[4], "new")
    push(recovered, history, new, {MAIN: new[0]})
    assert refs_of(again(storage, clock))[MAIN] == new[0]


@pytest.mark.parametrize("harm", [damage_record, older_log, take_both])
@pytest.mark.parametrize("power", [False, True])
def test_a_recovery_that_is_cut_anywhere_goes_on(
    harm: Harm,
    power: bool,
    repository: PackRepository,
    history: History,
    line: list[bytes],
    storage: MemoryTransport,
    clock: Clock,
) -> None:
    harm(repository, storage)
    frozen = freeze(storage.crash(Aftermath.EVERYTHING))

    def seen(store: MemoryTransport) -> tuple[dict[bytes, bytes], bool] | None:
        """The answer of a server that is started then, and whether it changes anything."""
        server = PackRepository(store, clock=clock, randomness=Repeatable(9))
        try:
            found = refs_of(server)
        except (NoSuchRepository, TransportError):
            return None
        try:
            push(server, history, [], {b"refs/heads/new": line[0]})
        except CorruptFile:
            return found, False
        return found, True

    before = seen(thaw(frozen))
    fail_at = 0
    while True:
        fail_at += 1
        store: MemoryTransport = thaw(frozen)
        faulty = FaultyTransport(store, fail_at=fail_at, mode="die")
        try:
            restore(PackRepository(faulty, clock=clock, randomness=Repeatable(fail_at)))
        except CodedError:
            assert faulty.calls >= fail_at
        if faulty.calls < fail_at:
            break
        if power:
            store = store.crash(Aftermath.DURABLE_ONLY)
        answer = seen(thaw(freeze(store)))
        if before is not None:
            assert answer is not None
            assert answer == before or answer[1]
            assert line.index(answer[0][MAIN]) >= line.index(before[0][MAIN])
        assert restore(again(store, clock)) == []
        recovered = again(store, clock)
        assert refs_of(recovered)[MAIN] == line[4]
        check_whole(recovered, history)
        assert not find(store)
    assert fail_at > 10


def test_reads_are_answered_until_then_and_changes_refused(
    repository: PackRepository, history: History, line: list[bytes], storage: MemoryTransport, clock: Clock
) -> None:
    damage_record(repository, storage)
    server = again(storage, clock)
    assert refs_of(server) == {MAIN: line[2]}
    with pytest.raises(CorruptFile, match="no change is made before `smartserver recover`"):
        push(server, history, [], {SIDE: line[0]})
    assert [each.made for each in find(storage).changes] == [False, True, True]  # The first is in its pack alone.
    assert restore(server) == []
    assert refs_of(server) == {MAIN: line[4], SIDE: line[0]}  # As the server that was running sees.
    assert [name[:10] for name in storage.list_directory(LOST)] == ["0000000005"]  # It cannot be read.


def test_what_is_not_chosen_stays_in_lost(
    repository: PackRepository, line: list[bytes], storage: MemoryTransport
) -> None:
    storage.delete(record_path(5))
    findings = find(storage)
    assert list(findings.misfits) == [record_path(7), record_path(6)]
    served = FaultyTransport(storage)
    recovery.restore(PackRepository(served), findings, [])
    assert not any("format" in call for call in served.log)  # A server lets nobody make that through its files.
    assert [name[:10] for name in storage.list_directory(LOST)] == ["0000000006", "0000000007"]
    assert refs_of(repository) == {MAIN: line[2]}
    assert repository.verify().lost == 3
    assert repository.verify().problems == ()
    assert len(find(storage).changes) == 3
    assert restore(repository) == []
    assert refs_of(repository) == {MAIN: line[4], SIDE: line[0]}
    assert storage.list_directory(LOST) == []


def test_nothing_is_found_where_nothing_is_lost(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    line = history.line(20)
    for each in line:
        push(repository, history, [each], {MAIN: each})
        push(repository, history, [], {SIDE: each})
    storage.remove_directory(CHECKPOINTS)  # An archive has no empty folder.
    assert not find(storage)
    storage.make_directory(CHECKPOINTS)
    repository.repack()
    checkpoint(repository)
    assert not find(storage)
    clock.now += KEPT + 1
    repository.collect_garbage_files()
    assert not find(storage)
    assert not storage.exists(LOST)


def test_nothing_tells_what_was_there(repository: PackRepository, line: list[bytes], storage: MemoryTransport) -> None:
    with pytest.raises(NoSuchRepository):
        find(MemoryTransport())
    take_both(repository, storage)
    for name in storage.list_directory(PACKS):
        path = f"{PACKS}/{name}"
        replace(storage, path, storage.get(path)[:-1])
    with pytest.raises(CorruptFile, match="restore a backup"):
        find(storage)


def move(repository: PackRepository, clock: Clock, name: bytes, *tips: bytes | None) -> None:
    """Move a ref to one tip after the other, an hour apart."""
    for tip in tips:
        push(repository, History(), [], {name: tip})
        clock.now += 3600


@pytest.mark.parametrize("damage", ["the newest record is damaged", "an older copy lies over it"])
def test_what_was_undone_long_ago_is_not_done_again(
    damage: str,
    repository: PackRepository,
    line: list[bytes],
    storage: MemoryTransport,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("smartserver.store.history.KEPT_ENTRIES", 3)
    copy = {path: storage.get(path) for path in map(record_path, range(1, 8))}
    move(repository, clock, SIDE, None, line[1], None)
    clock.now += KEPT
    for _ in range(2):
        move(repository, clock, MAIN, line[3], line[4])
        checkpoint(repository)
    if damage == "an older copy lies over it":
        clean_log(storage, repository.randomness)
        for path, content in copy.items():
            storage.put(path, [content])
        assert not find(storage)
    else:
        replace(storage, record_path(14), b"cut")
        assert list(find(storage).misfits) == [record_path(14)]
    assert restore(again(storage, clock)) == []
    recovered = again(storage, clock)
    assert refs_of(recovered) == {MAIN: line[4]}
    assert (recovered.verify().lost, recovered.verify().problems) == (0, ())


# -- what the log lacks


def test_an_old_log_that_was_put_back_is_filled_from_packs(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    """A change that only a pack tells may never have been acknowledged."""
    line = history.line(4)
    push_each(repository, history, line[:3])
    request = request_id()
    first = push(repository, history, line[3:], {MAIN: line[3]}, request=request)
    put_back(storage)
    clock.now += 3 * KEPT
    repository = again(storage, clock)
    repository.collect_garbage_files()
    assert refs_of(repository) == {MAIN: line[0]}
    findings = find(storage)
    assert findings.made == []
    assert (repository.verify().lost, repository.verify().problems) == (3, ())
    told: list[str] = []
    assert recovery.restore(repository, findings, findings.changes[1:], lambda what, why: told.append(why)) == 0
    assert [why.endswith("restore the change that it rests on, too") for why in told] == [True, True]
    assert refs_of(repository) == {MAIN: line[0]}
    assert restore(repository) == []
    assert refs_of(repository) == {MAIN: line[3]}
    assert repository.verify().lost == 0
    check_whole(repository, history)
    repeat = push(repository, history, line[3:], {MAIN: line[3]}, request=request, age=1000)
    assert (repeat.outcome, repeat.changed) == (first.outcome, False)


def test_all_that_a_record_says_is_restored(
    repository: PackRepository, history: History, storage: MemoryTransport
) -> None:
    line = history.line(2)
    push(repository, history, line, {MAIN: line[1], SIDE: line[0]})
    push(repository, history, [], {SIDE: None})

    change(repository, lambda made: made.set_setting("HEAD", SIDE))
    change(repository, lambda made: made.set_map("tags", "ids", b"v1", line[0]))
    storage.delete(record_path(2))
    checkpoint(repository)
    storage.delete(f"{CHECKPOINTS}/{storage.list_directory(CHECKPOINTS)[0]}")
    assert restore(repository) == []
    assert refs_of(repository) == {MAIN: line[1]}
    state = repository.snapshot().state
    assert state.settings["HEAD"] == SIDE
    assert (dict(state.map("tags")), state.map_kind("tags")) == ({b"v1": line[0]}, "ids")


def test_what_was_changed_since_is_not_overwritten(
    repository: PackRepository, history: History, storage: MemoryTransport
) -> None:
    line = history.line(3)
    push(repository, history, line[:1], {MAIN: line[0]})
    push(repository, history, line[1:2], {MAIN: line[1], SIDE: line[1]})
    push(repository, history, line[2:], {SIDE: line[2]})
    put_back(storage)
    (other,) = history.line(1, line[0], "other")
    push(repository, history, [other], {MAIN: other})
    first, _ = (each.id for each in find(storage).changes)
    assert restore(repository) == [
        f"refs/heads/main was changed since; the recovered value is kept as refs/recovered/{first}/heads/main"
    ]
    kept = b"refs/recovered/%b/heads/main" % first.encode()
    assert refs_of(repository) == {MAIN: other, SIDE: line[2], kept: line[1]}
    assert not find(storage)
    check_whole(repository, history)


def test_a_change_of_a_deleted_repository_is_of_another_one(
    repository: PackRepository, history: History, storage: MemoryTransport
) -> None:
    """Its pack was left by a writer that died; the incarnation of before a recovery is no other."""
    line = history.line(3)
    push(repository, history, line[:1], {MAIN: line[0]})
    push(repository, history, line[1:2], {SIDE: line[1]})
    put_back(storage)
    recovery.restore(repository, find(storage), [])
    assert [each.elsewhere for each in find(storage).changes] == [False]
    repository.delete(request_id(), 0, "user")
    with pytest.raises(NoSuchRepository):
        repository.snapshot()
    push(repository, history, line[:1], {MAIN: line[0]})
    assert [each.elsewhere for each in find(storage).changes] == [True]


def test_packs_that_were_joined_and_deleted_are_cut_out_again(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    line = history.line(20)
    push_each(repository, history, line)
    repository.repack()
    clock.now += KEPT + 1
    repository.collect_garbage_files()
    assert len(storage.list_directory(PACKS)) == 2
    put_back(storage, 6)
    repository = again(storage, clock)
    assert len(find(storage).gone) == 5
    assert restore(repository) == []
    assert refs_of(repository) == {MAIN: line[4]}  # No record says to which revisions it was moved later.
    snapshot = check_whole(repository, history)
    assert all(snapshot.ordinal(each) is not None for each in line)


def test_a_pack_that_is_nowhere_stops_a_recovery(
    repository: PackRepository, line: list[bytes], storage: MemoryTransport
) -> None:
    pack = next(name for name in storage.list_directory(PACKS) if name.endswith(".pack"))
    storage.delete(f"{PACKS}/{pack}")
    with pytest.raises(CorruptFile, match=r"the pack is missing, and no other pack has its revisions"):
        restore(repository)
    assert storage.list_directory(LOST) == []


def test_a_damaged_joined_pack_keeps_no_change_from_being_restored(
    repository: PackRepository, history: History, storage: MemoryTransport
) -> None:
    line = history.line(3)
    push(repository, history, line[:1], {MAIN: line[0]})
    push(repository, history, line[1:], {MAIN: line[2]})
    put_back(storage)
    junk = encode_trailer(Trailer(b"i" * 16, 1, b"h" * 16, None, (b"a" * 16,)))
    storage.put(f"{PACKS}/{'ab' * 16}.pack", [b"no pack" + junk])
    (why,) = restore(repository)
    assert "ab" * 16 in why
    assert refs_of(repository) == {MAIN: line[2]}


def test_somebody_who_is_first_is_not_overwritten(
    repository: PackRepository, history: History, line: list[bytes], storage: MemoryTransport
) -> None:
    findings = find(storage)
    push(repository, history, [], {SIDE: line[3]})
    with pytest.raises(TransportError, match="another process changed the repository meanwhile"):
        recovery.restore(repository, findings, [])
    assert refs_of(repository) == {MAIN: line[4], SIDE: line[3]}
    assert repository.verify().problems == ()
    assert not find(storage)
