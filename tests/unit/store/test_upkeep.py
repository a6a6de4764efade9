"""store.upkeep, store.repack: which packs are joined, and which files are deleted, when and by whom."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from builders import MAIN, Clock, History, Repeatable, Stepwise, check_whole, push, request_id, upload
from calls import calls_of
from changes import push_each
from memory_transport import MemoryTransport
from pack_samples import KINDS, Stored, history, stored

from smartserver.errors import CorruptFile, OutcomeUnknown
from smartserver.store import checkpoint, repack, upkeep
from smartserver.store.format import CHECKPOINTS, INCOMING, LOG, PACKS
from smartserver.store.open_pack import OpenPack, index_path, pack_path
from smartserver.store.pack import PackReader, PackWriter
from smartserver.store.quarantine import Quarantine
from smartserver.store.record import PackEntry, record_path
from smartserver.store.repack import AHEAD, FEW_PACKS, LARGE, MOST_PACKS
from smartserver.store.repository import COLLECT_INTERVAL, PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.store.trailer import Trailer, encode_trailer
from transports.errors import PermissionDenied, TransportFailed

DAY = upkeep.KEPT


def packs(storage: MemoryTransport) -> set[str]:
    return set(storage.list_directory(PACKS))


def test_leftovers_are_looked_for_once_an_hour(
    repository: PackRepository, history: History, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In passing, after a repack; whoever asks for it gets it at once."""
    collected = calls_of(monkeypatch, upkeep, "collect", lambda *_: clock.now)
    begun = clock.now
    line = iter(history.line(4 * (MOST_PACKS + 1)))
    for later in (0, 0, COLLECT_INTERVAL - 1, COLLECT_INTERVAL):
        clock.now = begun + later
        push_each(repository, history, itertools.islice(line, MOST_PACKS + 1))
        repository.tidy()
    assert collected == [begun, begun + COLLECT_INTERVAL]
    repository.tidy()
    assert len(repository.snapshot().packs) <= MOST_PACKS
    assert len(collected) == 2
    repository.collect_garbage_files()
    assert len(collected) == 3


def test_old_packs_go_a_day_later(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    line = history.line(MOST_PACKS + 1)
    push_each(repository, history, line)
    old = packs(storage)
    reader = repository.snapshot()
    assert repository.repack_if_needed()
    kept = {f"{pack.entry.name.hex()}.{end}" for pack in repository.snapshot().packs for end in ("pack", "idx")}
    assert packs(storage) == old | kept
    clock.now += DAY - 1
    assert repository.collect_garbage_files() == 0
    assert packs(storage) == old | kept
    assert reader.lookup(0, line[0]) == history.objects[line[0]]
    clock.now += 2
    version = repository.snapshot().state.version
    assert repository.collect_garbage_files() == len(old - kept)
    assert packs(storage) == kept
    assert repository.snapshot().state.dropped == {}
    assert repository.snapshot().state.version == version + 1
    assert repository.collect_garbage_files() == 0
    assert repository.snapshot().state.version == version + 1
    check_whole(repository, history)


class Kept(Stepwise):
    """Refuses to delete a file."""

    kept = ""

    def before(self, call: str, path: str) -> None:
        if call in ("delete", "withdraw") and path == self.kept:
            raise PermissionDenied(path)


def test_a_pack_is_forgotten_when_it_is_gone(history: History, storage: MemoryTransport, clock: Clock) -> None:
    store = Kept(storage)
    repository = PackRepository(store, clock=clock, randomness=Repeatable())
    push_each(repository, history, history.line(MOST_PACKS + 1))
    assert repository.repack_if_needed()
    clock.now += DAY
    name = min(repository.snapshot().state.dropped)
    store.kept = pack_path(name)
    repository.collect_garbage_files()
    assert set(repository.snapshot().state.dropped) == {name}
    assert storage.exists(store.kept)
    store.kept = ""
    assert repository.collect_garbage_files() == 1
    assert repository.snapshot().state.dropped == {}


def test_a_repack_that_lost_drops_its_output(
    repository: PackRepository,
    history: History,
    storage: MemoryTransport,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    push_each(repository, history, history.line(MOST_PACKS + 1))
    other = PackRepository(storage, clock=clock, randomness=Repeatable(1))
    run = repack.run

    def late(*arguments: Any, **named: Any) -> PackEntry:
        monkeypatch.setattr(repack, "run", run)
        made = run(*arguments, **named)
        assert other.repack().after == 1
        return made

    monkeypatch.setattr(repack, "run", late)
    assert not repository.repack_if_needed()
    snapshot = check_whole(repository, history)
    assert storage.list_directory(INCOMING) == []
    named = len(snapshot.packs) + len(snapshot.state.dropped)
    assert len(packs(storage)) == 2 * named


@pytest.mark.parametrize("whole", [False, True])
def test_it_is_known_while_packs_are_joined(repository: PackRepository, history: History, whole: bool) -> None:
    seen: list[bool] = []

    def look(*_progress: int) -> None:
        seen.append(repository.is_repacking)

    def repack() -> None:
        if whole:
            repository.repack(look)
        else:
            repository.repack_if_needed(look)

    push_each(repository, history, history.line(1))
    repack()
    assert True not in seen, "there was nothing to join"
    push_each(repository, history, history.line(MOST_PACKS + 1))
    assert not repository.is_repacking
    repack()
    assert True in seen
    assert not repository.is_repacking


def test_one_repack_at_a_time(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    """In a process, and of several processes; one that died in its turn is waited for a while only."""
    other = PackRepository(storage, clock=clock, randomness=Repeatable(1))
    push_each(repository, history, history.line(MOST_PACKS + 1))
    with repository._repacking:
        assert not repository.repack_if_needed()
    storage.put(repack.TURN, [])
    assert not repository.repack_if_needed()
    clock.now += repack.LONGEST_TURN
    seen: list[bool] = []
    assert repository.repack_if_needed(lambda: seen.append(other.repack_if_needed()))
    assert seen
    assert not any(seen)
    assert not storage.exists(repack.TURN)


def test_a_repack_that_somebody_waits_for_rests_no_more(repository: PackRepository, history: History) -> None:
    push_each(repository, history, history.line(MOST_PACKS + 1))
    rests: list[None] = []
    waiting = threading.Thread(target=repository.repack)

    def rest() -> None:
        rests.append(None)
        waiting.start()
        assert repository._awaited.wait(30)

    assert repository.repack_if_needed(rest)
    waiting.join()
    assert len(rests) == 1
    assert len(repository.snapshot().packs) == 1


@pytest.mark.parametrize("beside", [False, True])
def test_a_repack_that_falls_behind_rests_no_more(
    repository: PackRepository, history: History, storage: MemoryTransport, beside: bool
) -> None:
    """Be it another process that brings the packs: they are seen where this one is asked anything."""
    push_each(repository, history, history.line(MOST_PACKS + 1))
    more = iter(history.line(AHEAD + 2, None, "more"))
    other = PackRepository(storage, randomness=Repeatable(3)) if beside else repository
    rests: list[None] = []

    def rest() -> None:
        rests.append(None)
        push(other, history, [next(more)])
        if beside:
            repository.snapshot()

    assert repository.repack_if_needed(rest)
    assert len(rests) == AHEAD + (0 if beside else 1)  # What the last push left has not been looked at yet.


def abandoned(repository: PackRepository, history: History, storage: MemoryTransport, request: bytes) -> str:
    """The pack of a push whose writer died before its record; its name."""
    there = packs(storage)
    (tip,) = history.line(1, None, request.decode())
    dying = Dying(storage)
    with pytest.raises(OutcomeUnknown):
        push(PackRepository(dying, clock=repository.clock), history, [tip], {MAIN: tip}, request=request)
    return next(name for name in packs(storage) - there if name.endswith(".pack")).removesuffix(".pack")


class Dying(Stepwise):
    """Fails for ever once a record is to be published."""

    dead = False

    def before(self, call: str, path: str) -> None:
        self.dead |= path.endswith(".record")
        if self.dead:
            raise TransportFailed(path, "the process died")


def test_packs_that_no_record_names(
    repository: PackRepository,
    history: History,
    storage: MemoryTransport,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One whose request was carried out with another pack is dropped at once: the history forgets the request. A joined
    pack is dropped when it is a day old. Both are deleted a day later. Any other may be all that is left of an answered
    push: it is never deleted."""
    push_each(repository, history, history.line(2))
    retried, lone = (abandoned(repository, history, storage, request) for request in (b"retried", b"lone"))
    (tip,) = history.line(1, None, "retried")
    push(repository, history, [tip], {MAIN: tip}, request=b"retried")
    trailer = encode_trailer(Trailer(bytes(16), 1, bytes(16), None, (b"o" * 16,)))
    storage.put(f"{PACKS}/{'ab' * 16}.pack", [b"joined, and then another was first", trailer])
    storage.put(f"{PACKS}/{'cd' * 16}.pack", [b"cut"])
    there = packs(storage)
    assert repository.collect_garbage_files() == 0
    assert caplog.messages == []
    assert set(repository.snapshot().state.dropped) == {bytes.fromhex(retried)}
    clock.now += DAY
    assert repository.collect_garbage_files() == 2
    there -= {f"{retried}.pack", f"{retried}.idx"}
    assert packs(storage) == there
    assert set(repository.snapshot().state.dropped) == {bytes.fromhex("ab" * 16)}
    told = "packs that no change in the log uses, kept: 2; `smartserver recover --list` shows what they are"
    assert caplog.messages == [told]
    clock.now += DAY
    assert repository.collect_garbage_files() == 1
    assert packs(storage) == there - {f"{'ab' * 16}.pack"}
    clock.now += 10 * DAY
    assert repository.collect_garbage_files() == 0
    assert f"{lone}.pack" in packs(storage)
    assert repository.snapshot().state.dropped == {}
    check_whole(repository, history)


def test_a_pack_whose_change_is_refused_meanwhile(
    repository: PackRepository, history: History, storage: MemoryTransport
) -> None:
    """Its writer deletes it after the collection has seen it."""
    push_each(repository, history, history.line(1))
    name = abandoned(repository, history, storage, b"refused")

    class Refused(Stepwise):
        def before(self, call: str, path: str) -> None:
            if call == "open_read" and path == f"{PACKS}/{name}.pack":
                storage.delete(path)

    assert PackRepository(Refused(storage), clock=repository.clock).collect_garbage_files() == 0
    assert f"{name}.pack" not in packs(storage)


def test_the_storages_clock_tells_the_age_of_unnamed_files(history: History) -> None:
    """This machine's clock is years ahead: nothing young is dropped or deleted for it."""
    storage = MemoryTransport(Clock())
    repository = PackRepository(storage, clock=Clock(1_900_000_000.0), randomness=Repeatable())
    push_each(repository, history, history.line(1))
    trailer = encode_trailer(Trailer(bytes(16), 1, bytes(16), None))
    storage.put(f"{PACKS}/{'ab' * 16}.pack", [b"being joined by another process", trailer])
    storage.put(f"{INCOMING}/{'ab' * 16}.pack", [b"being written by another process"])
    assert repository.collect_garbage_files() == 0
    assert repository.snapshot().state.dropped == {}
    assert storage.exists(f"{INCOMING}/{'ab' * 16}.pack")


def test_leftovers_in_incoming_go_a_day_later(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    line = history.line(2)
    push(repository, history, line[:1], {MAIN: line[0]})
    upload(repository, history.body(line[1:]), 1)
    storage.make_directory(f"{INCOMING}/a.record.folder")
    storage.put(f"{INCOMING}/a.record.folder/record", [b"published as a folder, but for the rename"])
    clock.now += DAY - 1
    assert repository.collect_garbage_files() == 0
    storage.put(f"{INCOMING}/young", [])
    clock.now += 1
    assert repository.collect_garbage_files() == 3
    assert storage.list_directory(INCOMING) == ["young"]


def test_an_index_whose_pack_never_came_goes_a_day_later(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    """A writer over a link died before it moved the pack."""
    (tip,) = history.line(1)
    push(repository, history, [tip], {MAIN: tip})
    (pack,) = repository.snapshot().state.packs
    storage.delete(pack_path(pack.name))  # A damage: what a record names is no leftover.
    for name in ("ab", "cd"):
        storage.put(index_path(bytes.fromhex(name * 16)), [b"index"])
    storage.put(pack_path(bytes.fromhex("cd" * 16)), [b"pack"])
    storage.make_directory(index_path(b"f" * 16))
    storage.put(f"{index_path(b'f' * 16)}/x", [b"keeps the folder from being removed"])
    clock.now += DAY - 1
    assert repository.collect_garbage_files() == 0
    clock.now += 1
    assert repository.collect_garbage_files() == 2
    assert storage.list_directory(INCOMING) == [f"{(b'f' * 16).hex()}.idx.gone"]  # Nothing looks at it among packs.
    left = {index_path(bytes.fromhex("cd" * 16)), pack_path(bytes.fromhex("cd" * 16)), index_path(pack.name)}
    assert {f"{PACKS}/{name}" for name in storage.list_directory(PACKS)} == left


def test_a_large_record_is_not_the_newest_for_long(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    """Each look reads the newest."""
    (tip,) = history.line(1)
    push(repository, history, [tip], {b"refs/heads/%04d" % number: tip for number in range(2000)})
    before = repository.snapshot().state
    assert storage.stat(record_path(before.version)).size > upkeep.LARGE
    another = PackRepository(storage, clock=clock, randomness=Repeatable(2))
    another.snapshot()
    for each in (another, repository, another):
        each.tidy()
        after = each.snapshot().state
        assert (after.version, dict(after.refs())) == (before.version + 1, dict(before.refs()))
        assert storage.stat(record_path(after.version)).size < 200


def test_a_checkpoint_is_made_where_one_is_due(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    """In passing; the log is cleaned then, and whoever opens it cold reads what is left."""
    (tip,) = history.line(1)
    push(repository, history, [tip], {MAIN: tip})
    for number in range(3 * checkpoint.FEW):
        push(repository, history, [], {b"refs/tags/%d" % number: tip})
        repository.tidy()
        clock.now += 60
    assert len(storage.list_directory(CHECKPOINTS)) == 2
    assert len(storage.list_directory(LOG)) < 2 * checkpoint.FEW
    other = PackRepository(storage, clock=clock)
    assert other.log.look().state.hash == repository.log.look().state.hash
    assert len(check_whole(other, history).state.refs()) == 3 * checkpoint.FEW + 1


def test_a_folder_that_only_resembles_a_repository(repository: PackRepository, storage: MemoryTransport) -> None:
    """Nothing of somebody else's is touched."""
    for name in ("packs", "incoming", "tables", "log", "incoming/letters"):
        storage.make_directory(name)
    storage.put("incoming/letters/one", [b"dear"])
    storage.put("notes.txt", [b"mine"])
    assert repository.collect_garbage_files() == 0
    assert storage.get("incoming/letters/one") == b"dear"


def test_files_of_a_deleted_repository(
    repository: PackRepository, history: History, storage: MemoryTransport, clock: Clock
) -> None:
    push_each(repository, history, history.line(3))
    repository.delete(request_id(), 0, "user")
    clock.now += DAY - 1
    assert repository.collect_garbage_files() == 0
    clock.now += DAY + 1
    assert repository.collect_garbage_files() == 6
    assert packs(storage) == set()
    line = history.line(1)
    push(repository, history, line, {MAIN: line[0]})
    check_whole(repository, history)


def entries(sizes: Sequence[int]) -> list[PackEntry]:
    return [PackEntry(b"n" * 16, size, b"h" * 16, 1, b"i" * 16, 1, 1) for size in sizes]


def join(sizes: list[int], part: slice | None) -> int:
    """Do what a plan says; gives the bytes written."""
    if part is None:
        return 0
    assert part.stop - part.start > 1
    written = sum(sizes[part])
    sizes[part] = [written]
    return written


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [([], 0), ([1], 0), ([1, 1], 1), ([1, LARGE + 1, 1], 0), ([1, 1, LARGE + 1, 1, LARGE + 1, 1, 1, 1], 2)],
)
def test_what_may_be_joined(sizes: list[int], rows: int) -> None:
    assert repack.rows(entries(sizes)) == rows


@pytest.mark.parametrize("base", [[], [60_000_000]])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_thousand_pushes(base: list[int], seed: int) -> None:
    """The number of packs stays small. A byte is rewritten about once each time the repository doubles in size."""
    chance = random.Random(seed)
    sizes = list(base)
    pushed = written = repacks = most = 0
    for _ in range(2000):
        size = int(chance.lognormvariate(7, 1.2)) + 200
        sizes.append(size)
        pushed += size
        most = max(most, len(sizes))
        joined = join(sizes, repack.plan(entries(sizes)))
        written += joined
        repacks += joined > 0
    assert sum(sizes) == sum(base) + pushed
    assert most == MOST_PACKS + 1 < 20
    assert repacks <= 2000 / (MOST_PACKS - FEW_PACKS)
    assert written < 8 * pushed
    assert not base or sizes[0] == base[0]


def test_large_packs_are_left_alone_and_part_the_others() -> None:
    large = LARGE + 1
    sizes = [large] * 40
    assert repack.plan(entries(sizes)) is None
    sizes = [large, *[5] * 4, large, *[7] * MOST_PACKS]
    join(sizes, repack.plan(entries(sizes)))
    assert sizes == [large, *[5] * 4, large, 7 * MOST_PACKS]
    sizes = [large, *[5] * MOST_PACKS, large, *[7] * 4]
    join(sizes, repack.plan(entries(sizes)))
    assert sizes == [large, 5 * MOST_PACKS, large, *[7] * 4]
    assert repack.plan(entries([3, large] * (MOST_PACKS + 1))) is None
    assert repack.plan(entries([LARGE] * (MOST_PACKS + 1))) is not None


def place_of(made: Stored) -> Quarantine:
    if not made.transport.exists("incoming"):
        made.transport.make_directory("incoming")
    return Quarantine(made.transport, b"repack", lambda size: b"n" * size)


def test_damage_never_gets_a_new_trailer() -> None:
    made = stored([3, 3])
    path = pack_path(made.entries[1].name)
    content = bytearray(made.transport.get(path))
    content[len(content) // 2] ^= 1
    made.transport.delete(path)
    made.transport.put(path, (bytes(content),))
    snapshot = Snapshot.open(made.transport, made.state())
    with pytest.raises(CorruptFile, match=f"{path}.*does not match the hash at its end"):
        repack.run(place_of(made), snapshot.packs, made.state())
    # A pack of the same length that is whole, but not the one the log names.
    made.transport.delete(path)
    file = made.transport.create(path)
    writer = PackWriter(file, KINDS)
    reader = PackReader(made.transport.open_read(pack_path(made.entries[0].name)), made.entries[0].length, "pack")
    other = b"".join(reader.chunks())
    size = made.entries[1].length - writer.length - 16
    writer.append((other * 3)[:size])
    writer.finish()
    place_of(made).discard()
    snapshot = Snapshot.open(made.transport, made.state())
    with pytest.raises(CorruptFile, match=f"{path}.*the hash at its end differs from the one in the log"):
        repack.run(place_of(made), snapshot.packs, made.state())


def test_packs_of_other_kinds_are_not_joined() -> None:
    made = stored([3])
    path = pack_path(b"o" * 16)
    file = made.transport.create(path)
    writer = PackWriter(file, KINDS[:2])
    writer.append(history(1)[0].segment())
    length, digest = writer.finish()
    snapshot = Snapshot.open(made.transport, made.state())
    entry = PackEntry(b"o" * 16, length, digest, 0, b"", 1, 1)
    other = OpenPack(made.transport, entry, KINDS[:2], lambda _entry, _index: None)
    other.index = snapshot.packs[0].index
    with pytest.raises(CorruptFile, match="its kinds of records differ from those of the previous pack"):
        repack.run(place_of(made), [*snapshot.packs, other], made.state())


@pytest.mark.parametrize(
    ("sizes", "left"),
    [([], []), ([5], [5]), ([5, 6], [11]), ([1000, 1, 1], [1002]), ([5, 6, LARGE + 1, 7, 8, 9], [11, LARGE + 1, 24])],
)
def test_all_are_joined_when_somebody_asks(sizes: list[int], left: list[int]) -> None:
    while (part := repack.plan(entries(sizes), whole=True)) is not None:
        join(sizes, part)
    assert sizes == left
