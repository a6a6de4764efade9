"""store.snapshot, store.stored_records: what is read of packs, in Python and natively, and of a log that goes on."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest
from builders import MAIN, History, Repeatable, locate, push
from calls import raising
from counting import Counting
from needs import needs
from pack_samples import KINDS, Revision, Stored, blob, history, note, opened, stored, write_pack
from trips import Trips

from smartserver.errors import CorruptFile
from smartserver.meters import FILES_READ
from smartserver.records.model import Parent, Record
from smartserver.records.segment import decode_segment
from smartserver.records.varint import Malformed
from smartserver.store import remote, stored_records
from smartserver.store import snapshot as snapshot_module
from smartserver.store.caches import CachedText, TextCache
from smartserver.store.format import PACKS
from smartserver.store.index import Index, record_digest
from smartserver.store.log_view import TRIES
from smartserver.store.open_pack import pack_path
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot, States
from smartserver.store.stored_records import decode_header
from transports.decorators.counted import CountedTransport
from transports.errors import NoSuchFile
from transports.local import LocalTransport

TEXT = b"a text that is long enough to be the base of another one, line after line\n" * 4


def test_locations_say_depth_and_base_over_packs() -> None:
    made = stored([3, 2, 4])
    snapshot = opened(made)
    below = None
    for number, revision in enumerate(made.revisions):
        record = revision.records[0][0]
        (location,) = locate(snapshot, 0, record.key)
        assert (location.depth, location.chain_kib, location.lineage) == (number, 2 * (number + 1), number)
        assert location.length == len(record.text)
        assert snapshot.base(location) == below
        below = location


def test_a_chain_as_deep_as_any_is_read_without_recursion() -> None:
    made = Stored()
    snapshot = made.add(history(256))
    last = made.revisions[-1].records[0][0]
    (location,) = locate(snapshot, 0, last.key)
    assert location.depth == 255
    assert opened(made, TextCache(0)).record(location) == last
    texts = TextCache()
    assert opened(made, texts).record(location) == last
    assert len(texts) == 256


def test_all_copies_the_lowest_first_and_it_is_the_base() -> None:
    made = Stored()
    text, changed = note(b"k", TEXT), note(b"z", TEXT + b"changed\n")
    made.add([Revision(b"a", (), [(text, None)]), Revision(b"b", (), [(text, None)])])
    snapshot = made.add([Revision(b"c", (Parent(b"b"),), [(text, None), (changed, text)])])
    assert [(location.pack, location.ordinal) for location in locate(snapshot, 1, b"k")] == [(0, 0), (0, 1), (1, 2)]
    assert list(snapshot.introducers(1, b"k")) == [0, 1, 2]
    for location in locate(snapshot, 1, b"k"):
        assert snapshot.record(location) == text
    (location,) = locate(snapshot, 1, b"z")
    # Never the copy beside it: which one it is would change when packs are joined, and with it every depth above.
    assert snapshot.base(location) == locate(snapshot, 1, b"k")[0]
    assert snapshot.record(location) == changed


def test_another_text_under_the_key_in_a_copy_of_the_repository() -> None:
    texts, places = TextCache(), []
    for number, text in enumerate((b"what was written here\n", b"what was written in the copy\n")):
        made, record = Stored(), note(b"k", text)
        made.entries.append(write_pack(made.transport, [Revision(b"a", (), [(record, None)])], bytes([number]) * 16))
        places.append((opened(made, texts), record))
    for snapshot, record in places * 2:
        assert snapshot.record(locate(snapshot, 1, b"k")[0]) == record


def test_a_header_longer_than_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_records, "NEAR", 100)
    for module in (snapshot_module, stored_records):
        monkeypatch.setattr(module, "HEADER", 8)
    record = Record(1, b"k" * 500, b"m" * 3000, TEXT)
    small = note(b"small", b"x")
    made = Stored()
    snapshot = made.add([Revision(b"a", (), [(record, None), (small, None)])])
    assert snapshot.record(locate(snapshot, 1, b"k" * 500)[0]) == record
    assert snapshot.record(locate(snapshot, 1, b"small")[0]) == small


def test_a_newer_snapshot_takes_over_what_is_open() -> None:
    made = stored([3, 2])
    made.transport = counted = CountedTransport(made.transport)
    before = opened(made)
    before.read_ranges([(4, 5)]).read(1)
    counting = Counting()
    same = Snapshot.open(counted, made.state(), before)
    assert same.packs == before.packs
    assert same.graph is before.graph
    assert not counting[FILES_READ]
    made.entries.append(write_pack(made.transport, history(1, start=5), b"third pack's nam", before))
    counting = Counting()
    after = Snapshot.open(counted, made.state(), before)
    assert after.packs[:2] == before.packs
    assert after.graph.parts[:2] == before.graph.parts
    assert after.texts is before.texts
    assert counting[FILES_READ] == 1  # The new index.
    after.read_ranges([(5, 6)]).read(1)
    assert counting[FILES_READ] == 2  # The new pack, now that it is read.
    assert after.graph.parents(5) == (4,)
    assert before.graph.count == 5


def test_another_incarnation_shares_no_ordinals() -> None:
    made = stored([3, 2, 2])
    before = opened(made)
    made.entries = made.entries[:1]
    shorter = dataclasses.replace(made.state(), incarnation=b"j" * 16)
    after = Snapshot.open(made.transport, shorter, before)
    assert after.graph.count == 3
    assert after.packs[0] is not before.packs[0]


def test_a_parent_that_is_in_no_pack_before_is_named() -> None:
    made = stored([2, 2])
    made.entries.reverse()
    with pytest.raises(CorruptFile, match="the parent revision-0001 is in no pack before it"):
        opened(made)


def test_a_base_that_is_in_no_pack_before_is_named() -> None:
    made = Stored()
    base, changed = blob(TEXT), blob(TEXT + b"changed\n")
    before = made.add([Revision(b"a", (), [(base, None)])])
    made.entries.append(write_pack(made.transport, [Revision(b"b", (), [(changed, base)])], b"n" * 16, before))
    del made.entries[0]
    snapshot = opened(made)
    (location,) = locate(snapshot, 0, changed.key)
    with pytest.raises(CorruptFile, match=f"its base {base.key.hex()} is in no pack before it"):
        snapshot.record(location)


def test_wrong_text_in_the_cache_is_never_given_as_a_record() -> None:
    """A base decoded from a damaged frame is not proved; what rests on it fails its own check."""
    made = stored([3])
    snapshot = opened(made)
    first, second = (revision.records[0][0] for revision in made.revisions[:2])
    row = locate(snapshot, 0, first.key)[0].row
    snapshot.texts.put(made.entries[0].name + row.to_bytes(4, "little"), CachedText(b"x" * len(first.text), False))
    with pytest.raises(CorruptFile, match=f"record {first.key.hex()}: the text hashes to"):
        snapshot.record(locate(snapshot, 0, first.key)[0])
    with pytest.raises(CorruptFile, match=f"record {second.key.hex()}"):
        snapshot.record(locate(snapshot, 0, second.key)[0])


@pytest.mark.parametrize(("kind", "key"), [(1, b"z"), (2, b"k")])
def test_a_row_that_leads_to_another_record_is_damage(kind: int, key: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """To one of another key, or of another kind with that key."""
    made = Stored()
    others = note(b"k", TEXT), note(b"z", TEXT + b"changed\n"), note(b"k", b"signed\n", 2)
    snapshot = made.add([Revision(b"a", (), [(each, None) for each in others])])
    assert snapshot.lookup(kind, key) in others[1:]
    rows = snapshot.packs[0].index.find_digest(record_digest(1, b"k"))
    monkeypatch.setattr(Index, "find_digest", lambda index, digest: rows)
    with pytest.raises(CorruptFile, match="its key differs from the one in the index"):
        opened(made).lookup(kind, key)


def test_a_base_that_does_not_lie_before_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    made = stored([3])
    snapshot = opened(made)
    location = locate(snapshot, 0, made.revisions[2].records[0][0].key)[0]
    monkeypatch.setattr(Snapshot, "_base", lambda snapshot, number, row, said: (number, row))
    why = f"row {location.row}: its base, row {location.row}, does not lie before it"
    for read in (snapshot.record, snapshot.base):
        with pytest.raises(CorruptFile, match=why):
            read(location)
    monkeypatch.setattr(remote, "NEAR", 0)  # Nothing is fetched, by which that would end.
    snapshot.fetch([location])


def test_parents_as_the_segment_names_them() -> None:
    """Ghosts too; a header that is longer than what is read first is read again."""
    many = [Parent(b"ghost %d " % number * 9, absent=True) for number in range(40)]
    first, second = Revision(b"r0"), Revision(b"r1", [Parent(b"r0"), many[0]])
    third = Revision(b"r2", [*many, Parent(b"r1")], [(note(b"n", TEXT), None)])
    snapshot = Stored().add([first, second, third])
    assert [snapshot.parents(ordinal) for ordinal in range(3)] == [(), tuple(second.parents), tuple(third.parents)]
    assert [snapshot.first_parent(ordinal) for ordinal in range(3)] == [None, 0, None]
    with pytest.raises(IndexError):
        snapshot.parents(3)


def test_a_header_that_cannot_be_read() -> None:
    made = stored([2])
    snapshot = opened(made)
    path = pack_path(made.entries[0].name)
    whole = made.transport.get(path)
    for wrong in (b"\0", b"\xff"):
        made.transport.delete(path)
        at = snapshot.packs[0].index.segment_offsets[1]
        made.transport.put(path, (whole[:at] + wrong * (len(whole) - at),))
        with pytest.raises(CorruptFile, match="segment header"):
            opened(made).parents(1)


def test_a_pack_that_is_gone_means_the_log_is_read_again(repository: PackRepository, history: History) -> None:
    """So often, and then it is missed."""
    line = history.line(1)
    push(repository, history, line, {MAIN: line[0]})
    for name in repository.folder.list_directory(PACKS):
        repository.folder.delete(f"{PACKS}/{name}")
    trips = Trips(repository.folder)
    with pytest.raises(NoSuchFile):
        PackRepository(trips).snapshot()
    assert sum("GetPublished log/0000000003" in each for each in trips.log) == TRIES


def test_a_slower_thread_does_not_bring_back_an_older_one(repository: PackRepository, history: History) -> None:
    line = history.line(2)
    push(repository, history, line[:1], {MAIN: line[0]})
    states = States(repository.log, TextCache())
    before = states.read()
    push(repository, history, line[1:], {MAIN: line[1]})
    after = states.read()
    assert before.snapshot is not None
    older = states.open(before.snapshot.state)
    assert older is not None
    assert older.state is before.snapshot.state
    assert states.latest is after.snapshot


BASE = blob(b"the text of a base, long enough to be one\n" * 4)
CHANGED = blob(BASE.text + b"and a line\n")
OWN = note(b"revision", b"the revision's own record\n" * 3)
SEGMENT = Revision(
    b"revision",
    (Parent(b"parent"),),
    (
        (OWN, None),
        (BASE, None),
        (CHANGED, BASE),
        (note(b"k" * 200, b"x" * 70_000), note(b"elsewhere", b"x" * 69_000)),
        (note(b"empty", b""), None),
        (note(b"signature", b"signed", 2), None),
    ),
)


def test_each_header_of_a_segment() -> None:
    encoded = SEGMENT.segment()
    segment = decode_segment(encoded, 0, KINDS)
    for entry, at in zip(segment.entries, segment.headers, strict=True):
        assert decode_header(encoded[at:], b"revision", KINDS) == entry
    farther = decode_segment(b"before" + encoded, len(b"before"), KINDS)
    assert farther.headers == segment.headers


def test_a_header_cut_anywhere_is_refused() -> None:
    encoded = SEGMENT.segment()
    segment = decode_segment(encoded, 0, KINDS)
    for at, end in itertools.pairwise([*segment.headers, segment.frames_at]):
        for cut in range(at, end):
            with pytest.raises(Malformed):
                decode_header(encoded[at:cut], b"revision", KINDS)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(Malformed, match="kind 3, but the repository has 3"):
        decode_header(bytes((3, 0, 0, 0, 0, 0, 0)), b"revision", KINDS)


def pushed(folder: Path, history: History) -> Snapshot:
    """A repository on the disk, in two packs, of which nothing is cached."""
    repository = PackRepository(LocalTransport(str(folder)), "project", randomness=Repeatable())
    line = history.line(40)
    push(repository, history, line[:20], {MAIN: line[19]})
    push(repository, history, line[20:], {MAIN: line[-1]})
    snapshot = PackRepository(LocalTransport(str(folder)), "project").begin().snapshot
    assert snapshot is not None
    return snapshot


@needs("native parts")
def test_sound_records_are_read_natively(tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = pushed(tmp_path, history)
    monkeypatch.setattr(Snapshot, "_load", raising(AssertionError("Python reads it")))
    for key, record in reversed(history.objects.items()):  # Else each rests on a text that is in the cache.
        assert snapshot.lookup(0, key) == record


@needs("native parts")
def test_a_damaged_record_is_named_by_python(tmp_path: Path, history: History) -> None:
    snapshot = pushed(tmp_path, history)
    location = locate(snapshot, 0, next(reversed(history.objects)))[0]
    pack = tmp_path / "project" / snapshot.packs[location.pack].path
    content = bytearray(pack.read_bytes())
    content[location.frame_offset + location.frame_length - 1] ^= 0xFF
    pack.write_bytes(content)
    with pytest.raises(CorruptFile, match="record "):
        snapshot.record(location)
