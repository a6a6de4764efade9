from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from counting import Counting
from root_cases import HOUR, KINDS, NOW, entry, make, new_root, pack, push, randomness, request, seen, tip

from smartserver.errors import CorruptFile, InvalidName, LimitExceeded
from smartserver.meters import FILES_READ
from smartserver.records.model import RefValue, Tip, encode_ref
from smartserver.records.system import system_of
from smartserver.store import root as root_module
from smartserver.store.document import MAX_ROOT, REFS, Dropped, Root, empty_root, encode_root, encode_value
from smartserver.store.model import RootVersion
from smartserver.store.root import FOLD_AT, RootView, next_root, tombstone
from smartserver.store.swap import RootFile
from smartserver.store.swap_log import CLOCK_MARGIN, KEPT_FILES, MAX_FILES
from smartserver.store.tables import LEAST_ENTRY, OVERHEAD, Table
from smartserver.wire.limits import MAX_ENTRIES, MAX_MAPS, MAX_MESSAGE
from transports.base import Transport
from transports.decorators.counted import CountedTransport
from transports.memory import MemoryTransport

MAIN = b"refs/heads/main"


def applied(transport: Transport, result: tuple[Root, list[tuple[str, bytes]]]) -> RootView:
    """Write the files of a new root below a bare folder, as a swap would."""
    root, files = result
    for path, content in files:
        folder = path.partition("/")[0]
        if not transport.exists(folder):
            transport.make_directory(folder)
        transport.put(path, [content])
    assert len(encode_root(root)) <= MAX_ROOT
    return RootView(root, transport)


def first(transport: Transport | None = None, refs: dict[bytes, RefValue | None] | None = None) -> RootView:
    transport = transport if transport is not None else MemoryTransport()
    return applied(transport, new_root(transport, refs if refs is not None else {MAIN: tip(1)}))


def many(count: int, start: int = 0) -> dict[bytes, RefValue | None]:
    return {b"refs/tags/%06d" % number: tip(number) for number in range(start, start + count)}


def test_the_first_root() -> None:
    view = first()
    assert (view.root.version, view.root.vcs, view.root.kinds) == (1, "git sha1", KINDS)
    assert dict(view.refs()) == {MAIN: tip(1)}
    assert view.ref(MAIN) == tip(1)
    assert view.ref(b"absent") is None
    assert view.root.settings == {"HEAD": b"refs/heads/main"}
    assert view.maps == {}
    assert view.dropped() == []


def test_each_root_is_one_version_on_and_leaves_the_last_alone() -> None:
    view = first()
    before = encode_root(view.root)
    after, files = next_root(view, now=NOW, refs={b"new": tip(2), MAIN: None}, log=entry(1)).finish()
    assert (after.version, after.incarnation) == (2, view.root.incarnation)
    assert files == []
    assert encode_root(view.root) == before
    assert dict(RootView(after, view.transport).refs()) == {b"new": tip(2)}


def test_packs_epoch_and_settings() -> None:
    view = first()
    after, _ = next_root(view, now=NOW, packs=[pack(1), pack(2)], epoch=3, settings={"HEAD": None, "a": b"b"}).finish()
    assert after.packs == (pack(1), pack(2))
    assert after.epoch == 3
    assert (after.settings, after.settings_version) == ({"a": b"b"}, 2)
    later, _ = next_root(RootView(after, view.transport), now=NOW, settings={"a": b"b", "gone": None}).finish()
    assert (later.settings_version, later.packs, later.epoch) == (2, after.packs, 3)


def test_the_log_says_who_changed_what() -> None:
    view = first()
    after, _ = next_root(
        view, now=NOW + 5, refs={MAIN: tip(2), b"x": tip(3), b"absent": None}, log=entry(1, b"answer")
    ).finish()
    last = after.log[-1]
    assert (last.version, last.time, last.user, last.request) == (2, 1_700_000_005_000, "joe", request(1))
    assert last.outcomes == b"answer"
    refs = [(each.key, each.old, each.new) for each in last.changes if each.table == REFS]
    assert refs == [(MAIN, encode_value(tip(1)), encode_value(tip(2))), (b"x", None, encode_value(tip(3)))]


def test_refs_do_not_change_without_an_entry_of_the_log() -> None:
    with pytest.raises(ValueError, match="entry of the log"):
        next_root(first(), now=NOW, refs={MAIN: tip(2)}).finish()
    root, _ = next_root(first(), now=NOW, refs={MAIN: tip(1)}).finish()  # A change to the same changes nothing.
    assert root.version == 2


@pytest.mark.parametrize("name", [b"", b"a\0", b"\0a", b"a\0b", b"x" * 1025])
def test_a_name_that_cannot_be_one(name: bytes) -> None:
    with pytest.raises(InvalidName):
        next_root(first(), now=NOW, refs={name: tip(1)}, log=entry(1)).finish()


@pytest.mark.parametrize("key", [b"", b"\0a", b"a\0b\0", b"x" * 1025, b"a\0" + b"x" * 1025])
def test_a_key_that_cannot_be_one(key: bytes) -> None:
    view = applied(MemoryTransport(), next_root(first(), now=NOW, declare={"tags": "ids"}).finish())
    with pytest.raises(InvalidName):
        next_root(view, now=NOW, maps={"tags": {key: b"x"}}, log=entry(1)).finish()


@pytest.mark.parametrize("key", [b"a", b"a\0", b"a\0b", b"x" * 1024 + b"\0" + b"x" * 1024])
def test_a_key_may_have_a_refs_name_before_it(key: bytes) -> None:
    view = applied(MemoryTransport(), next_root(first(), now=NOW, declare={"tags": "ids"}).finish())
    next_root(view, now=NOW, maps={"tags": {key: b"x"}}, log=entry(1)).finish()


@pytest.mark.parametrize("count", [1, 3000], ids=["in the root", "in a file"])
def test_a_map_is_removed_when_it_is_empty(count: int) -> None:
    entries = {b"%d" % number: b"x" for number in range(count)}
    change = next_root(first(), now=NOW, declare={"junk": "ids"}, maps={"junk": {**entries}}, log=entry(1)).finish()
    view = applied(MemoryTransport(), change)
    file = view.root.tables["map/junk"].file
    with pytest.raises(ValueError, match="has entries"):
        next_root(view, now=NOW, declare={"junk": None}, log=entry(2))
    gone = next_root(view, now=NOW, declare={"junk": None}, maps={"junk": dict.fromkeys(entries)}, log=entry(2))
    after = applied(view.transport, gone.finish())
    assert (after.maps, after.map_kind("junk")) == ({}, None)
    assert [each.name for each in after.dropped()] == ([] if file is None else [file.name])


def test_maps_are_declared_with_a_kind() -> None:
    view = first()
    declared = applied(view.transport, next_root(view, now=NOW, declare={"tags": "ids", "phases": "opaque"}).finish())
    assert {name: dict(table) for name, table in declared.maps.items()} == {"tags": {}, "phases": {}}
    assert declared.root.tables["map/tags"].kind == "ids"
    assert declared.root.tables["map/phases"].kind == "opaque"
    filled = applied(
        view.transport,
        next_root(declared, now=NOW, declare={"tags": "opaque"}, maps={"tags": {b"1.0": b"id"}}, log=entry(1)).finish(),
    )
    assert dict(filled.maps["tags"]) == {b"1.0": b"id"}
    assert filled.root.tables["map/tags"].kind == "opaque"
    assert [(each.table, each.key, each.old, each.new) for each in filled.root.log[-1].changes] == [
        ("maps", b"tags", b"ids", b"opaque"),
        ("map/tags", b"1.0", None, b"id"),
    ]
    assert dict(filled.refs()) == {MAIN: tip(1)}
    with pytest.raises(ValueError, match="never declared"):
        next_root(view, now=NOW, maps={"tags": {b"1.0": b"id"}}, log=entry(1)).finish()
    with pytest.raises(ValueError, match="ids or opaque"):
        next_root(view, now=NOW, declare={"tags": "both"}).finish()


# -- changes_since


def told(refs: Mapping[bytes, RefValue | None]) -> dict[bytes, bytes | None]:
    """As a change says them."""
    return {name: None if value is None else encode_value(value) for name, value in refs.items()}


def test_a_value_that_is_none_is_found_by_verifying() -> None:
    """It travels as it lies there."""
    view = first()
    table = msgspec.structs.replace(view.root.tables["refs"], inline={MAIN: b"junk"})
    damaged = msgspec.structs.replace(view.root, tables={**view.root.tables, "refs": table})
    (problem,) = RootView(damaged, view.transport).verify()
    assert problem.startswith("root at byte 0: the value of a ref: ")


def test_everything_for_those_who_know_nothing() -> None:
    view = first()
    for known in (
        None,
        RootVersion(b"j" * 16, 1, view.mark(1)),
        RootVersion(b"i" * 16, 2, view.mark(1)),
        RootVersion(b"i" * 16, 1, 7),
    ):
        changes = view.changes_since(known)
        assert (changes.incarnation, changes.version, changes.since) == (b"i" * 16, 1, None)
        assert dict(changes.refs) == told({MAIN: tip(1)})
        assert (changes.vcs, changes.settings) == ("git sha1", {"HEAD": b"refs/heads/main"})


def test_nothing_for_those_who_know_it_all() -> None:
    changes = first().changes_since(RootVersion(b"i" * 16, 1, 0))
    assert (changes.since, changes.refs, changes.maps, changes.vcs, changes.settings) == (1, {}, {}, "", {})


def test_only_what_changed_and_the_last_value_wins() -> None:
    view = first()
    steps: list[dict[bytes, RefValue | None]] = [
        {b"a": tip(1), b"b": tip(1)},
        {b"a": tip(2), MAIN: None},
        {b"b": None, b"c": (Tip(b"x", b"7", True),)},
    ]
    for number, refs in enumerate(steps):
        view = applied(view.transport, next_root(view, now=NOW, refs=refs, log=entry(number + 1)).finish())
    changed = {1: {b"a": tip(2), b"b": None, MAIN: None, b"c": (Tip(b"x", b"7", True),)}}
    changed[2] = {b"a": tip(2), MAIN: None, b"b": None, b"c": (Tip(b"x", b"7", True),)}
    changed[3] = {b"b": None, b"c": (Tip(b"x", b"7", True),)}
    for known, refs in changed.items():
        changes = view.changes_since(seen(view, known))
        assert (changes.since, changes.refs, changes.settings, changes.vcs) == (known, told(refs), {}, "")
    assert view.changes_since(seen(view, 0)).since == 0  # Before the creation: everything, told as changes.


def test_a_version_of_another_line_is_told_everything() -> None:
    """A backup was put back, and goes on to the versions that a client knows with other content."""
    before = first()
    old = new = before
    for number in range(1, 7):
        old = applied(
            old.transport, next_root(old, now=NOW, refs={b"old %d" % number: tip(number)}, log=entry(number)).finish()
        )
        new = applied(
            new.transport, next_root(new, now=NOW, refs={b"new": tip(number)}, log=entry(10 + number)).finish()
        )
    assert new.changes_since(seen(before, 1)).since == 1
    for version in range(2, 8):
        assert new.changes_since(seen(old, version)).since is None
        assert new.changes_since(seen(new, version)).since == version
    upkeep = applied(before.transport, next_root(before, now=NOW, packs=[pack(1)]).finish())
    assert old.changes_since(seen(upkeep, 2)).since is None
    assert upkeep.changes_since(seen(old, 2)).since is None


@pytest.mark.parametrize("size", [1, 60_000])
def test_the_version_of_the_last_fold_has_a_mark(size: int) -> None:
    """Of a whole log that went into a file, and of its older half."""
    lines = []
    for line in (1, 2):
        view = first()
        for number in range(500 if size == 1 else 2):
            change = next_root(
                view, now=NOW, refs={b"a": tip(number)}, log=entry(1000 * line + number, b"o" * size)
            ).finish()
            view = applied(view.transport, change)
        lines.append(view)
    one, other = lines
    version = one.root.log_from
    assert version == other.root.log_from > 1
    assert one.changes_since(seen(one, version)).since == version
    assert other.changes_since(seen(one, version)).since is None


def test_maps_and_settings_that_changed() -> None:
    view = first()
    view = applied(view.transport, next_root(view, now=NOW, declare={"tags": "ids"}).finish())
    view = applied(view.transport, next_root(view, now=NOW, maps={"tags": {b"1": b"x"}}, log=entry(2)).finish())
    view = applied(view.transport, next_root(view, now=NOW, settings={"HEAD": None}, log=entry(3)).finish())
    assert view.changes_since(seen(view, 2)).maps == {"tags": {b"1": b"x"}}
    assert view.changes_since(seen(view, 3)).maps == {}
    removed = view.changes_since(seen(view, 3))
    assert (removed.vcs, removed.settings) == ("git sha1", {})  # The `vcs` tells that settings did change.


def test_a_map_that_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_of("git sha1"), "untold", {"long": b""})
    view = first()
    view = applied(view.transport, next_root(view, now=NOW, declare={"long": "opaque", "tags": "ids"}).finish())
    before = seen(view, view.root.version)
    maps: dict[str, dict[bytes, bytes | None]] = {"long": {b"1": b"x", b"2": b"y"}, "tags": {b"1": b"x"}}
    view = applied(view.transport, next_root(view, now=NOW, maps=maps, log=entry(2)).finish())
    for known in (None, before):
        assert {name: dict(entries) for name, entries in view.changes_since(known).maps.items()} == {
            "tags": {b"1": b"x"}
        }
    assert view.changed_keys("long", before) == frozenset([b"1", b"2"])
    assert view.changed_keys("long", seen(view, view.root.version)) == frozenset()
    assert view.changed_keys("long", RootVersion(bytes(16), 1, 0)) is None


def test_a_swap_without_an_entry_keeps_the_log_unbroken() -> None:
    view = first()
    view = applied(view.transport, next_root(view, now=NOW, packs=[pack(1)]).finish())
    view = applied(view.transport, next_root(view, now=NOW, refs={b"a": tip(1)}, log=entry(2)).finish())
    assert view.changes_since(seen(view, 1)).refs == told({b"a": tip(1)})


# -- folding


def test_a_large_table_goes_to_a_file_and_changes_lie_over_it() -> None:
    view = first(refs=many(1000))
    assert view.root.tables["refs"].file is not None
    assert view.root.tables["refs"].file.count == 1000
    assert view.files() == {view.root.tables["refs"].file.path, view.root.log_files[0].path}
    assert len(encode_root(view.root)) < 1500
    assert dict(view.refs()) == many(1000)
    later = applied(
        view.transport, next_root(view, now=NOW, refs={MAIN: tip(1), b"refs/tags/000007": None}, log=entry(1)).finish()
    )
    assert later.root.tables == view.root.tables
    assert later.root.changes == {"refs": {MAIN: b"\x91\x91\xc4\x14" + tip(1)[0].id, b"refs/tags/000007": None}}
    expected = {MAIN: tip(1), **many(1000)}
    del expected[b"refs/tags/000007"]
    assert list(later.refs().items()) == list(expected.items())
    assert len(later.refs()) == 1000


def test_a_lookup_reads_a_table_once_and_the_next_view_takes_it_over() -> None:
    storage = MemoryTransport()
    first(storage, refs=many(1000))
    counted = CountedTransport(storage)
    view = RootView(first(MemoryTransport(), refs=many(1000)).root, counted)
    counting = Counting()
    assert view.ref(b"refs/tags/000500") == tip(500)
    assert view.ref(b"refs/tags/000501") == tip(501)
    assert counting[FILES_READ] == 1
    root, _ = next_root(view, now=NOW, refs={MAIN: tip(1)}, log=entry(1)).finish()
    assert RootView(root, counted, view).ref(b"refs/tags/000502") == tip(502)
    assert counting[FILES_READ] == 1
    assert RootView(root, counted).ref(b"refs/tags/000502") == tip(502)
    assert counting[FILES_READ] == 2


def test_the_root_stays_small_whatever_is_pushed() -> None:
    file = make(MemoryTransport(), {})
    model: dict[bytes, RefValue] = {}
    largest = 0
    for number in range(1, 400):
        name = b"refs/heads/%d" % (number * 7 % 300)
        push(file, {name: tip(number)}, number, NOW + number)
        model[name] = tip(number)
        largest = max(largest, len(file.folder.get("root")))
    assert largest <= FOLD_AT + 64
    view = RootView(file.read(), file.folder)
    assert dict(view.refs()) == model
    assert [entry.version for entry in view.log()] == list(range(400, 0, -1))
    assert all(view.find_request(request(number), in_files=True) is not None for number in range(400))
    assert view.find_request(request(1), in_files=False) is None
    assert view.verify() == []
    assert view.files() <= {f"log/{name}" for name in file.folder.list_directory("log")}
    assert len(view.files()) == len(view.root.log_files)


def test_after_a_fold_those_far_behind_get_everything() -> None:
    file = make(MemoryTransport(), {})
    for number in range(1, 500):
        push(file, {MAIN: tip(number)}, number)
    view = RootView(file.read(), file.folder)
    oldest = view.root.log[0].version
    assert view.root.log_files
    assert view.root.log_from == oldest - 1 == view.root.log_files[-1].last
    assert view.changes_since(seen(view, oldest - 1)).since == oldest - 1
    assert view.changes_since(seen(view, oldest - 2)).since is None


def test_an_entry_too_large_for_the_root_goes_straight_to_a_file() -> None:
    view = applied(MemoryTransport(), next_root(first(), now=NOW, refs={b"a": tip(1)}, log=entry(1)).finish())
    view = applied(
        view.transport, next_root(view, now=NOW + 1, refs=many(20_000), log=entry(2, b"o" * 60_000)).finish()
    )
    assert view.root.log == ()
    assert len(encode_root(view.root)) < 1500
    assert [(file.first, file.last) for file in view.root.log_files] == [(1, 3)]
    assert view.find_request(request(2), in_files=False) is None
    found = view.find_request(request(2), in_files=True)
    assert found is not None
    assert (found.outcomes, len(found.changes)) == (b"o" * 60_000, 20_000)
    assert view.changes_since(seen(view, 2)).since is None
    assert view.changes_since(seen(view, 3)).since == 3
    assert len(view.refs()) == 20_002


def test_a_table_that_shrinks_comes_back_into_the_root() -> None:
    view = first(refs=many(20_000))
    name = view.root.tables["refs"].file
    assert name is not None
    removed = dict.fromkeys(many(19990, 5))
    view = applied(view.transport, next_root(view, now=NOW, refs=removed, log=entry(1)).finish())
    assert view.root.tables["refs"].file is None
    assert list(view.refs()) == [b"refs/tags/%06d" % n for n in (0, 1, 2, 3, 4, *range(19_995, 20_000))]
    assert view.dropped() == [Dropped(name.name, int(NOW * 1000), 2)]


def test_many_middling_tables_move_out_one_by_one() -> None:
    view = applied(
        MemoryTransport(), next_root(first(), now=NOW, declare={str(n): "opaque" for n in range(8)}).finish()
    )
    maps = {str(n): {b"key %d" % k: b"v" * 100 for k in range(120)} for n in range(8)}
    view = applied(view.transport, next_root(view, now=NOW, maps=maps, log=entry(1)).finish())
    assert {name: dict(table) for name, table in view.maps.items()} == maps
    assert len(encode_root(view.root)) <= FOLD_AT + 64
    outside = [name for name, table in view.root.tables.items() if table.file is not None]
    assert 1 <= len(outside) < 8


def test_what_cannot_be_folded_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="bytes of the repository's root"):
        next_root(first(), now=NOW, settings={"HEAD": b"x" * MAX_ROOT}).finish()
    root, _ = next_root(first(), now=NOW, settings={"HEAD": b"x" * FOLD_AT}).finish()  # Over the one, under the other.
    assert root.version == 2


# -- dropped files


def test_dropped_packs_are_listed_until_forgotten() -> None:
    view = first()
    view = applied(view.transport, next_root(view, now=NOW, packs=[], dropped=[b"a" * 16, b"b" * 16]).finish())
    view = applied(view.transport, next_root(view, now=NOW + 1, dropped=[b"c" * 16]).finish())
    at = int(NOW * 1000)
    assert view.dropped() == [
        Dropped(b"a" * 16, at, 2),
        Dropped(b"b" * 16, at, 2),
        Dropped(b"c" * 16, at + 1000, 3),
    ]
    view = applied(view.transport, next_root(view, now=NOW + 2, forget=[b"a" * 16, b"c" * 16, b"never" * 3]).finish())
    assert [dropped.name for dropped in view.dropped()] == [b"b" * 16]


def test_thousands_of_dropped_packs_fit() -> None:
    view = first()
    random = randomness(7)
    names = [random(16) for _ in range(3000)]
    for at in range(0, 3000, 20):
        view = applied(
            view.transport, next_root(view, now=NOW + at, dropped=names[at : at + 20], randomness=random).finish()
        )
    named = {dropped.name for dropped in view.dropped()}
    assert named >= set(names)  # And the table files that held them.


# -- the log's reach


def test_log_files_are_named_for_a_day_and_the_newest_for_ever() -> None:
    transport = MemoryTransport()
    view = first(transport)
    for number in range(1, KEPT_FILES + 4):  # Each smaller than the one before, so that none is joined.
        log = entry(number, b"x" * (20_000 - number))
        view = applied(transport, next_root(view, now=NOW + number, log=log).finish())
    old = view.root.log_files
    assert len(old) == KEPT_FILES + 3
    day = 24 * HOUR
    at = old[0].time / 1000 + day
    assert next_root(view, now=at, log=entry(900)).finish()[0].log_files == old
    later = applied(transport, next_root(view, now=NOW + 10 * day, log=entry(901)).finish())
    assert later.root.log_files == old[3:]
    assert {each.name for each in later.dropped()} == {file.name for file in old[:3]}
    assert later.root.log_since == old[2].time + CLOCK_MARGIN
    now = NOW + 10 * day
    assert later.log_covers(int(now * 1000) - later.root.log_since, now)
    assert not later.log_covers(int(now * 1000) - later.root.log_since + 1, now)


def test_log_files_that_were_joined_are_dropped() -> None:
    transport = MemoryTransport()
    view = first(transport)
    gone: set[bytes] = set()
    for number in range(1, 9):  # Each larger than the one before, so that it is joined with that.
        before = {each.name for each in view.root.log_files}
        log = entry(number, b"x" * (20_000 + number * 1000))
        view = applied(transport, next_root(view, now=NOW, log=log).finish())
        gone |= before - {each.name for each in view.root.log_files}
    assert len(gone) > 1
    assert {each.name for each in view.dropped()} == gone


def test_a_new_repository_covers_everything_and_one_over_a_tombstone_its_own_life() -> None:
    view = first()
    assert view.log_covers(10**12, NOW)
    grave = applied(view.transport, tombstone(view, now=NOW + 60, log=entry(1)).finish())
    fresh = RootView(empty_root(b"j" * 16, "git sha1", KINDS, now=NOW + 100, over=grave.root), view.transport)
    again = applied(view.transport, next_root(fresh, now=NOW + 100, log=entry(2)).finish())
    assert again.log_covers(50_000, NOW + 150)
    assert not again.log_covers(50_001, NOW + 150)


def test_the_list_of_log_files_is_bounded() -> None:
    transport = MemoryTransport()
    view = first(transport)
    for number in range(1, MAX_FILES + 6):
        # Each smaller than the one before, so that none is joined: the list grows as fast as it can.
        view = applied(transport, next_root(view, now=NOW, log=entry(number, b"x" * (20_000 - number))).finish())
    assert len(view.root.log_files) == MAX_FILES
    assert view.root.log_since == NOW * 1000 + CLOCK_MARGIN
    assert view.find_request(request(1), in_files=True) is None
    assert view.find_request(request(MAX_FILES), in_files=True) is not None


def test_a_repeat_is_found_whatever_the_clock_says() -> None:
    file = make(MemoryTransport(), {})
    for number in range(1, 500):
        push(file, {MAIN: tip(number)}, number, NOW + number)
    push(file, {MAIN: tip(500)}, 500, NOW + 30 * 24 * HOUR)
    view = RootView(file.read(), file.folder)
    assert all(view.find_request(request(number), in_files=True) is not None for number in (1, 250, 499))


def test_a_push_from_a_clock_in_the_future_leaves_later_times_alone() -> None:
    file = make(MemoryTransport(), {})
    push(file, {MAIN: tip(1)}, 1, NOW + 3650 * 24 * HOUR)
    root = push(file, {MAIN: tip(2)}, 2, NOW + 1)
    assert root.log[-1].time == (NOW + 1) * 1000


def test_the_reach_of_the_log_is_not_moved_into_the_future() -> None:
    transport = MemoryTransport()
    view = first(transport)
    for number in range(1, MAX_FILES + 6):
        ahead = 3650 * 24 * HOUR if number == 3 else 0
        log = entry(number, b"x" * (20_000 - number))
        view = applied(transport, next_root(view, now=NOW + ahead, log=log).finish())
    assert view.root.log_since == NOW * 1000 + CLOCK_MARGIN


# -- deletion


def test_a_tombstone_names_no_content_but_remembers() -> None:
    view = applied(MemoryTransport(), next_root(first(refs=many(1000)), now=NOW, packs=[pack(1)]).finish())
    view = RootView(view.root, first(view.transport, refs=many(1000)).transport)
    table = view.root.tables["refs"].file
    assert table is not None
    grave = applied(view.transport, tombstone(view, now=NOW + 1, log=entry(5, b"deleted")).finish())
    assert grave.root.deleted
    assert (grave.root.version, grave.root.incarnation, grave.root.vcs) == (3, b"i" * 16, "git sha1")
    assert (grave.root.packs, dict(grave.refs()), grave.root.settings) == ((), {}, {})
    assert {dropped.name for dropped in grave.dropped()} == {pack(1).name, table.name}
    found = grave.find_request(request(5), in_files=False)
    assert found is not None
    assert found.outcomes == b"deleted"


def test_creation_over_a_tombstone_keeps_the_list_of_dropped_files() -> None:
    view = applied(MemoryTransport(), next_root(first(), now=NOW, packs=[pack(1)]).finish())
    grave = applied(view.transport, tombstone(view, now=NOW, log=entry(5)).finish())
    fresh = RootView(empty_root(b"j" * 16, "git sha1", KINDS, now=NOW, over=grave.root), view.transport)
    again = applied(view.transport, next_root(fresh, now=NOW, refs={MAIN: tip(9)}, log=entry(6)).finish())
    assert (again.root.version, again.root.incarnation, again.root.deleted) == (1, b"j" * 16, False)
    assert [dropped.name for dropped in again.dropped()] == [pack(1).name]
    assert again.find_request(request(5), in_files=True) is None
    assert again.changes_since(seen(again, 1)).since is None


# -- damage


def test_damage_is_named_and_found_by_verify() -> None:
    file = make(MemoryTransport(), many(1000))
    for number in range(1, 500):
        push(file, {MAIN: tip(number)}, number)
    root = file.read()
    table = root.tables["refs"].file
    assert table is not None
    storage = MemoryTransport()
    for folder, path in (("tables", table.path), ("log", root.log_files[-1].path)):
        content = bytearray(file.folder.get(path))
        content[len(content) // 2] ^= 1
        storage.make_directory(folder)
        storage.put(path, [bytes(content)])
    view = RootView(root, storage)
    with pytest.raises(CorruptFile, match=table.path):
        dict(view.refs())
    with pytest.raises(CorruptFile, match=root.log_files[-1].path):
        list(view.log())
    problems = view.verify()
    assert len(problems) == 1 + len(root.log_files)
    assert all("no such file" in problem or "does not match its check" in problem for problem in problems)


def test_a_view_of_a_bare_root_has_no_refs() -> None:
    root = msgspec.structs.replace(first().root, tables={}, changes={})
    view = RootView(root, MemoryTransport())
    assert (dict(view.refs()), view.ref(MAIN), view.dropped()) == ({}, None, [])


def test_a_root_file_gives_what_was_written() -> None:
    file = make(MemoryTransport(), {MAIN: tip(1)})
    assert isinstance(file, RootFile)
    assert file.read() == new_root(MemoryTransport(), {MAIN: tip(1)})[0]


# ---- a state that no reply can carry


def long_names(count: int, start: int = 0) -> dict[bytes, RefValue | None]:
    return {b"refs/tags/%06d-" % number + b"x" * 900: tip(number) for number in range(start, start + count)}


def test_a_state_too_large_for_a_reply_is_refused_by_who_would_make_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_module, "MAX_STATE", 1 << 20)
    view = first()
    for number in range(10):
        view = applied(
            view.transport, next_root(view, now=NOW, refs=long_names(100, number * 100), log=entry(number + 1)).finish()
        )
    with pytest.raises(
        LimitExceeded, match=r"bytes of refs, map entries and settings of a repository: \d+, expected"
    ) as caught:
        next_root(view, now=NOW, refs=long_names(200, 5000), log=entry(20)).finish()
    assert caught.value.limit == 1 << 20
    assert caught.value.value > 1 << 20
    # Whatever does not make it larger is taken, also where it is too large already.
    monkeypatch.setattr(root_module, "MAX_STATE", 1 << 10)
    name = next(iter(long_names(1)))
    moved = applied(view.transport, next_root(view, now=NOW, refs={name: tip(7)}, log=entry(21)).finish())
    assert (
        len(applied(moved.transport, next_root(moved, now=NOW, refs={name: None}, log=entry(22)).finish()).refs())
        == 1000
    )


def test_what_is_counted_is_not_less_than_a_reply_has(monkeypatch: pytest.MonkeyPatch) -> None:
    view = first()
    monkeypatch.setattr(root_module, "MAX_STATE", 0)
    maps: dict[str, dict[bytes, bytes | None]] = {"tags": {b"k%d" % n: b"v" * n for n in range(0, 70_000, 7000)}}
    for refs in (many(3), many(2000), long_names(50)):
        with pytest.raises(LimitExceeded) as caught:
            next_root(view, now=NOW, refs=refs, maps=maps, declare={"tags": "opaque"}, log=entry(1)).finish()
        said = {name: encode_ref(value) for name, value in refs.items() if value is not None}
        assert caught.value.value >= len(msgspec.msgpack.encode((said, maps)))


def test_the_limit_leaves_room_in_a_message() -> None:
    assert root_module.MAX_STATE + (4 << 20) <= MAX_MESSAGE


def test_a_client_takes_all_that_is_within_the_limits() -> None:
    assert root_module.MAX_MAPS <= MAX_MAPS
    assert root_module.MAX_STATE // LEAST_ENTRY <= MAX_ENTRIES


@pytest.mark.parametrize("removed", [{}, {MAIN: None}], ids=["more", "more for what was removed"])
def test_a_map_more_than_a_client_takes_is_refused(removed: dict[bytes, RefValue | None]) -> None:
    declare = {str(number): "opaque" for number in range(64)}
    view = applied(MemoryTransport(), next_root(first(), now=NOW, declare=declare).finish())
    one_more: dict[str, dict[bytes, bytes | None]] = {"64": {b"k": b"v"}}
    with pytest.raises(LimitExceeded) as caught:
        next_root(view, now=NOW, refs=removed, maps=one_more, declare={"64": "opaque"}, log=entry(1)).finish()
    assert (caught.value.what, caught.value.value, caught.value.limit) == ("maps of a repository", 65, 64)
    # Those that are there may grow, also where they are too many already.
    crowded = {f"map/{number}": Table("opaque") for number in range(70)}
    for each in (view, RootView(msgspec.structs.replace(view.root, tables=view.root.tables | crowded), view.transport)):
        grown = next_root(each, now=NOW, maps={"63": {b"k": b"v"}}, declare={"63": "opaque"}, log=entry(1)).finish()
        assert dict(applied(view.transport, grown).maps["63"]) == {b"k": b"v"}


@pytest.mark.parametrize("count", [100, 3000], ids=["in the root", "in a file"])
def test_a_short_entry_counts_as_a_longer_one(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    short: dict[bytes, bytes | None] = {b"%04d" % number: b"" for number in range(count)}
    tags = {"tags": {**short, b"long": b"x" * 200}}
    change = next_root(first(), now=NOW, declare={"tags": "opaque"}, maps=tags, log=entry(1)).finish()
    view = applied(MemoryTransport(), change)
    assert (view.root.tables["map/tags"].file is None) is (count == 100)
    limit = LEAST_ENTRY * (1 + count + 1 + 1) + len(b"HEAD" + MAIN) + OVERHEAD
    monkeypatch.setattr(root_module, "MAX_STATE", limit)
    next_root(view, now=NOW, maps={"tags": {b"a": b""}}, log=entry(2)).finish()
    with pytest.raises(LimitExceeded, match="map entries") as caught:
        next_root(view, now=NOW, maps={"tags": {b"a": b"", b"b": b""}}, log=entry(2)).finish()
    assert (caught.value.value, caught.value.limit) == (limit + LEAST_ENTRY, limit)
    # Nor may many of them take the place of a long one, which has as many bytes.
    instead: dict[bytes, bytes | None] = {b"long": None} | dict.fromkeys((b"a", b"b", b"c"), b"")
    with pytest.raises(LimitExceeded, match="map entries"):
        next_root(view, now=NOW, maps={"tags": instead}, log=entry(2)).finish()
