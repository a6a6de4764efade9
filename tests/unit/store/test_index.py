from __future__ import annotations

import hashlib
import sys
from array import array

import pytest
from pack_samples import KINDS, Revision, Stored, blob, history, no_base, note, stored

from smartserver.errors import CorruptFile, LimitExceeded
from smartserver.records.model import Parent
from smartserver.records.segment import decode_segment
from smartserver.store import index as index_module
from smartserver.store.index import (
    EXTERNAL,
    NO_BASE,
    OUTSIDE,
    Index,
    IndexBuilder,
    Row,
    fanout_bits,
    kib,
    merge,
    rebuild,
    record_digest,
)
from smartserver.store.pack import PackReader, PackWriter
from smartserver.store.snapshot import pack_path
from transports.memory import MemoryTransport

TEXT = b"a text that is long enough to be the base of another one, line after line\n" * 4


def build(revisions: list[Revision], rows: dict[bytes, Row] | None = None) -> Index:
    """The index of these revisions as a writer makes it, at offset 100."""
    builder = IndexBuilder()
    at = 100
    for revision in revisions:
        encoded = revision.segment()
        segment = decode_segment(encoded, 0, KINDS)
        builder.add(at, segment, [(rows or {}).get(entry.key, Row(0, kib(entry.length))) for entry in segment.entries])
        at += len(encoded)
    return Index(builder.finish(at + 16, b"h" * 16), "packs/1.idx")


def test_records_and_revisions_are_found() -> None:
    revisions = history(9)
    index = build(revisions)
    assert (index.records, index.segments) == (21, 9)
    assert (index.pack_length, index.pack_hash) == (sum(len(rev.segment()) for rev in revisions) + 116, b"h" * 16)
    at = 100
    for ordinal, revision in enumerate(revisions):
        encoded = revision.segment()
        segment = decode_segment(encoded, 0, KINDS)
        assert index.segment_offsets[ordinal] == at
        assert index.segment_of(revision.id) == ordinal
        assert index.revision(ordinal) == revision.id
        assert index.parents(ordinal) == ([ordinal - 1] if ordinal else [])
        frame_at = at + segment.frames_at
        for entry in segment.entries:
            (row,) = index.find(entry.kind, entry.key)
            assert index.digest(row) == record_digest(entry.kind, entry.key)
            assert index.row_segments[row] == ordinal
            assert index.frame_offsets[row] == frame_at
            assert index.frame_lengths[row] == entry.frame_length
            assert index.lengths[row] == entry.length
            assert encoded[index.header_offsets[row] - at] == entry.kind
            frame_at += entry.frame_length
        at += len(encoded)
    assert index.segment_offsets[9] == at
    assert index.segment_of(b"revision-0009") is None
    assert index.segment_of(b"") is None
    assert not index.find(0, b"note-1")
    assert not index.find(1, b"note-9")


def test_depth_and_chain_follow_the_bases_of_the_pack() -> None:
    index = build(history(9))
    for number, revision in enumerate(history(9)):
        (row,) = index.find(0, revision.records[0][0].key)
        assert index.row(row) == Row(number, kib(len(revision.records[0][0].text)) * (number + 1), 0)
        if number:
            (base,) = index.find(0, history(9)[number - 1].records[0][0].key)
            assert index.bases[row] == base
        else:
            assert index.bases[row] == NO_BASE


def test_a_base_elsewhere_keeps_what_the_writer_says() -> None:
    base = blob(TEXT)
    changed = blob(TEXT + b"changed\n")
    index = build([Revision(b"r", (), [(changed, base)])], {changed.key: Row(17, 40, 18)})
    assert index.bases[0] == EXTERNAL
    assert index.external(0) == (0, base.key)
    assert index.row(0) == Row(17, 40, 18)


@pytest.mark.parametrize("most", [0, 1 << 14])
def test_revisions_are_found_however_often_they_are_asked_for(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "MOST_KNOWN", most)
    index = build([Revision(b"%d" % number) for number in range(100)])
    for _ in range(2):
        for number in range(100):
            assert index.segment_of(b"%d" % number) == number
            assert index.segment_of(b"%d" % (number + 100)) is None


def test_copies_lie_side_by_side_the_lowest_first_and_are_the_base() -> None:
    text, changed = note(b"k", TEXT), note(b"z", TEXT + b"changed\n")
    copies = [Revision(b"r%d" % number, (), [(text, None)]) for number in range(5)]
    index = build([*copies, Revision(b"last", (Parent(b"r3"),), [(changed, text)])])
    rows = index.find(1, b"k")
    assert len(rows) == 5
    assert [index.row_segments[row] for row in rows] == [0, 1, 2, 3, 4]
    (row,) = index.find(1, b"z")
    assert index.bases[row] == rows[0]


def test_absent_parents_are_no_edges_and_outside_ones_are_listed() -> None:
    revisions = [
        Revision(b"a", (Parent(b"x"), Parent(b"ghost", True), Parent(b"y"))),
        Revision(b"b", (Parent(b"a"), Parent(b"x"))),
    ]
    index = build(revisions)
    assert index.outside == (b"x", b"y")
    assert index.parents(0) == [OUTSIDE, OUTSIDE | 1]
    assert index.parents(1) == [0, OUTSIDE]


@pytest.mark.parametrize(
    ("rows", "bits"),
    [(0, 0), (1, 0), (16, 0), (17, 1), (32, 1), (33, 2), (1 << 20, 16), (1 << 20 | 1, 16), (1 << 30, 16)],
)
def test_fanout_gives_buckets_of_about_sixteen(rows: int, bits: int) -> None:
    assert fanout_bits(rows) == bits


def test_every_bucket_of_a_larger_index_is_searched() -> None:
    revisions = [
        Revision(b"%d" % group, (), [(note(b"%d-%d" % (group, number), b""), None) for number in range(300)])
        for group in range(4)
    ]
    index = build(revisions)
    assert fanout_bits(index.records) == 7
    for group in range(4):
        for number in range(300):
            (row,) = index.find(1, b"%d-%d" % (group, number))
            assert index.row_segments[row] == group
            assert not index.find(2, b"%d-%d" % (group, number))


def test_a_match_across_two_digests_is_no_match() -> None:
    """A digest may lie in a bucket shifted: over the end of one row and the start of the next."""
    index = build([Revision(b"r", (), [(note(b"%d" % n, b""), None) for n in range(16)])])
    both = index.digest(4) + index.digest(5)
    for shift in range(1, 20):
        assert not index.find_digest(both[shift : shift + 20])
    assert index.find_digest(index.digest(5)) == range(5, 6)


def test_ten_records_take_less_than_two_kilobytes() -> None:
    revisions = [
        Revision(b"%020d" % 1, (Parent(b"%020d" % 0),), [(blob(b"text %d" % number), None) for number in range(10)])
    ]
    assert build(revisions).size < 1024


def test_an_empty_index() -> None:
    index = Index(IndexBuilder().finish(40, b"h" * 16), "index")
    assert (index.records, index.segments, index.outside) == (0, 0, ())
    assert not index.find(0, b"k")
    assert index.segment_of(b"r") is None
    assert index.segment_offsets[0] == 24


def test_a_builder_answers_while_it_collects() -> None:
    builder = IndexBuilder()
    revisions = history(3)
    at = 50
    for revision in revisions:
        segment = decode_segment(revision.segment(), 0, KINDS)
        assert builder.segment_of(revision.id) is None
        assert builder.first_copy(0, revision.records[0][0].key) is None
        builder.add(at, segment, [Row(9, 9, 4)] * len(segment.entries))
        at += segment.length
    assert (builder.segments, builder.records) == (3, 7)
    assert builder.segment_of(b"revision-0001") == 1
    assert builder.first_copy(0, revisions[0].records[0][0].key) == Row(0, 2, 4)
    assert builder.first_copy(0, revisions[2].records[0][0].key) == Row(2, 6, 4)
    with pytest.raises(ValueError, match="has a segment in this pack already"):
        builder.add(at, segment, [Row()] * len(segment.entries))


def test_more_rows_than_a_column_can_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "MAX_ROWS", 5)
    with pytest.raises(LimitExceeded, match="records of one pack: 7, expected no more than 5"):
        build(history(3))
    index = build(history(2))
    with pytest.raises(LimitExceeded, match="records of one pack: 10"):
        merge([index, index], 0, b"h" * 16)


def test_numbers_over_their_columns_stop_at_the_largest() -> None:
    base, changed = blob(TEXT), blob(TEXT + b"changed\n")
    index = build([Revision(b"r", (), [(changed, base)])], {changed.key: Row(300, 1 << 40, 1 << 40)})
    assert index.row(0) == Row(255, 0xFFFFFFFF, 0xFFFFFFFF)


def test_each_byte_flipped_is_an_error_with_the_files_name() -> None:
    base = blob(TEXT)
    revision = Revision(b"r", (Parent(b"x"),), [(blob(TEXT + b"!"), base), (note(b"k", b"x"), None)])
    content = bytearray(content_of([revision]))
    for at in range(len(content)):
        content[at] ^= 0x10
        with pytest.raises(CorruptFile, match=r"packs/1\.idx at byte \d+"):
            Index(bytes(content), "packs/1.idx")
        content[at] ^= 0x10
    for cut in range(len(content)):
        with pytest.raises(CorruptFile, match=r"packs/1\.idx at byte \d+"):
            Index(bytes(content[:cut]), "packs/1.idx")
    assert Index(bytes(content), "packs/1.idx").records == 2


def content_of(revisions: list[Revision]) -> bytes:
    builder = IndexBuilder()
    at = 100
    for revision in revisions:
        segment = decode_segment(revision.segment(), 0, KINDS)
        builder.add(at, segment, [Row()] * len(segment.entries))
        at += segment.length
    return builder.finish(at + 16, b"h" * 16)


def test_counts_that_pass_the_end_are_refused_though_the_hash_is_right() -> None:
    content = bytearray(content_of(history(3)))
    good = bytes(content)
    for field in range(5):
        for change in (1, 0x1000):
            content[:] = good
            at = 12 + 4 * field
            content[at : at + 4] = (int.from_bytes(content[at : at + 4], "little") + change).to_bytes(4, "little")
            content[-16:] = hashlib.blake2b(content[:-16], digest_size=16).digest()
            try:
                index = Index(bytes(content), "index")
            except CorruptFile:
                continue
            assert change == 1  # One more may fit in what an alignment leaves free, and then says nothing new.
            assert index.records == 7


def test_a_machine_of_the_other_byte_order_reads_and_writes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    column = array("I", (1, 0x01020304))
    plain = column.tobytes()
    monkeypatch.setattr(sys, "byteorder", "big")
    assert index_module._little_endian(column) == plain[3::-1] + plain[:3:-1]
    assert column.tobytes() == plain
    assert index_module._cast(memoryview(plain), "I").tolist() == [0x01000000, 0x04030201]
    assert index_module._cast(memoryview(plain), "B").tolist() == list(plain)


def readers(made: Stored) -> list[PackReader]:
    return [PackReader(made.transport.open_read(pack_path(entry.name)), entry.length, "pack") for entry in made.entries]


def test_merged_is_what_is_built_from_the_joined_pack() -> None:
    made = stored([3, 5, 1, 4])
    packs = readers(made)
    transport = MemoryTransport()
    file = transport.create("joined")
    writer = PackWriter(file, KINDS)
    for pack in packs:
        for chunk in pack.chunks():
            writer.append(chunk)
    length, digest = writer.finish()
    indexes = [Index(made.transport.get(f"packs/{entry.name.hex()}.idx"), "index") for entry in made.entries]
    merged = merge(indexes, length, digest)
    assert merged == rebuild(PackReader(transport.open_read("joined"), length, "joined"), no_base)
    index = Index(merged, "joined")
    assert index.external_count == 0
    assert index.outside == ()


def test_merging_one_index_changes_nothing() -> None:
    index = build(history(6))
    content = content_of(history(6))
    assert merge([Index(content, "index")], index.pack_length, index.pack_hash) == content


def test_a_revision_in_two_packs_is_refused() -> None:
    index = build(history(3))
    with pytest.raises(ValueError, match=r"revision 7265\w+ has a segment in two packs"):
        merge([index, index], 0, b"h" * 16)


def test_an_external_base_stays_external_when_its_copy_lies_behind_it() -> None:
    """The base of `changed` lies in a pack before these; a copy of it that came later is not its base."""
    base, changed = blob(TEXT), blob(TEXT + b"changed\n")
    first = build([Revision(b"a", (Parent(b"x"),), [(changed, base)])], {changed.key: Row(3, 4, 4)})
    second = build([Revision(b"b", (), [(base, None)])])
    index = Index(merge([first, second], 0, b"h" * 16), "merged")
    (row,) = index.find(0, changed.key)
    assert index.bases[row] == EXTERNAL
    assert index.external(0) == (0, base.key)
    assert index.row(row) == Row(3, 4, 4)


def test_a_base_that_lies_before_the_pack_is_external_though_a_copy_is_in_it() -> None:
    """Else its depth would change when packs are joined."""
    base, changed = blob(TEXT), blob(TEXT + b"changed\n")
    revisions = [Revision(b"a", (), [(base, None), (changed, base)])]

    def before(kind: int, key: bytes) -> bool:
        return (kind, key) == (0, base.key)

    builder = IndexBuilder(before)
    segment = decode_segment(revisions[0].segment(), 0, KINDS)
    builder.add(100, segment, [Row(), Row(8, 9, 7)])
    index = Index(builder.finish(0, b"h" * 16), "index")
    (row,) = index.find(0, changed.key)
    assert index.bases[row] == EXTERNAL
    assert index.row(row) == Row(8, 9, 7)
    assert builder.holds(record_digest(0, base.key))
    assert not builder.holds(record_digest(1, base.key))
    # It stays so when the pack is joined with a neighbour that has a copy too.
    neighbour = build([Revision(b"b", (), [(base, None)])])
    joined = Index(merge([neighbour, index], 0, b"h" * 16, before), "index")
    (row,) = joined.find(0, changed.key)
    assert joined.bases[row] == EXTERNAL
    assert joined.row(row) == Row(8, 9, 7)


def test_lineage_is_counted_along_the_bases_when_rebuilt() -> None:
    made = stored([4])
    (pack,) = readers(made)
    index = Index(rebuild(pack, no_base), "index")
    (row,) = index.find(0, made.revisions[3].records[0][0].key)
    assert index.row(row) == Row(3, 8, 3)


def test_rebuilding_needs_the_bases_that_lie_before() -> None:
    base = blob(TEXT)
    revision = Revision(b"r", (), [(blob(TEXT + b"changed\n"), base)])
    transport = MemoryTransport()
    writer = PackWriter(transport.create("pack"), KINDS)
    writer.add(revision.segment())
    length, _ = writer.finish()
    pack = PackReader(transport.open_read("pack"), length, "packs/1.pack")
    with pytest.raises(CorruptFile, match=f"packs/1.pack .* its base {base.key.hex()} is in no pack before it"):
        rebuild(pack, no_base)
    index = Index(rebuild(pack, lambda _kind, _key: Row(4, 7, 9)), "index")
    assert index.row(0) == Row(5, 8, 10)


def test_rebuilding_from_a_pack_that_holds_no_segments_of_its_kinds() -> None:
    transport = MemoryTransport()
    writer = PackWriter(transport.create("pack"), KINDS[:1])
    writer.add(Revision(b"r", (), [(note(b"k", b"x"), None)]).segment())
    length, _ = writer.finish()
    with pytest.raises(CorruptFile, match="kind 1, but the repository has 1"):
        rebuild(PackReader(transport.open_read("pack"), length, "packs/1.pack"), no_base)
