from __future__ import annotations

import dataclasses

import pytest
from builders import locate
from counting import Counting
from pack_samples import Revision, Stored, blob, history, note, opened, stored, write_pack

from smartserver.errors import CorruptFile
from smartserver.meters import FILES_READ
from smartserver.records.model import Parent, Record
from smartserver.store import remote, stored_records
from smartserver.store import snapshot as snapshot_module
from smartserver.store.caches import CachedText, TextCache
from smartserver.store.index import Index, record_digest
from smartserver.store.open_pack import pack_path
from smartserver.store.snapshot import Snapshot
from transports.decorators.counted import CountedTransport

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


def test_copies_of_a_kind_without_bases_may_differ() -> None:
    made = Stored()
    one, other = note(b"s", b"signed once\n", 2), note(b"s", b"signed twice\n", 2)
    made.add([Revision(b"a", (), [(one, None)])])
    snapshot = made.add([Revision(b"b", (), [(other, None)])])
    for _ in range(2):
        assert [snapshot.record(location) for location in locate(snapshot, 2, b"s")] == [one, other]


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
    with pytest.raises(CorruptFile, match="not the key in the index"):
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
