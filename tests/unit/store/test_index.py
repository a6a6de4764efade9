"""store.index, store.index_build: what a writer puts into an index, what is found in it, joining and rebuilding."""

from __future__ import annotations

import sys
from array import array

import pytest
from pack_samples import KINDS, Revision, blob, history, note, packed

from smartserver.errors import CorruptFile, LimitExceeded
from smartserver.records.segment import decode_segment
from smartserver.store import index_build
from smartserver.store.blocks import seal
from smartserver.store.index import EXTERNAL, Index, Row, record_digest
from smartserver.store.index_build import PACED, IndexBuilder, Numbering, Resolve, merge, nowhere, rebuild

TEXT = b"a text that is long enough to be the base of another one, line after line\n" * 4


def content_of(revisions: list[Revision], resolve: Resolve = nowhere) -> bytes:
    """The index of these revisions as a writer makes it, at offset 100."""
    builder = IndexBuilder(resolve)
    at = 100
    for revision in revisions:
        segment = decode_segment(revision.segment(), 0, KINDS)
        builder.add(at, segment)
        at += segment.length
    return b"".join(builder.finish(at + 16, b"h" * 16))


def build(revisions: list[Revision], resolve: Resolve = nowhere) -> Index:
    return Index.of(content_of(revisions, resolve), "packs/1.idx")


def test_a_match_across_two_digests_is_no_match() -> None:
    """A digest may lie in a bucket shifted: over the end of one row and the start of the next."""
    index = build([Revision(b"r", (), [(note(b"%d" % n, b""), None) for n in range(16)])])
    both = index.digest(4) + index.digest(5)
    for shift in range(1, 20):
        assert not index.find_digest(both[shift : shift + 20])
    assert index.find_digest(index.digest(5)) == range(5, 6)


def test_an_empty_index() -> None:
    index = Index.of(b"".join(IndexBuilder().finish(40, b"h" * 16)), "index")
    assert (index.records, index.segments, index.outside) == (0, 0, ())
    assert not index.find_digest(record_digest(0, b"k"))
    assert index.segment_of(b"r") is None
    assert index.segment_offsets[0] == 24


def test_counts_that_pass_the_end_are_refused_though_the_hash_is_right() -> None:
    content = bytearray(content_of(history(3)))
    good = bytes(content)
    for field in range(5):
        for change in (1, 0x1000):
            content[:] = good
            at = 12 + 4 * field
            content[at : at + 4] = (int.from_bytes(content[at : at + 4], "little") + change).to_bytes(4, "little")
            content[:] = b"".join(seal([bytes(content[:-32])]))
            try:
                index = Index.of(bytes(content), "index")
            except CorruptFile:
                continue
            assert change == 1  # One more may fit in what an alignment leaves free, and then says nothing new.
            assert index.records == 7


def test_a_machine_of_the_other_byte_order_reads_and_writes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    column = array("I", (1, 0x01020304))
    plain = column.tobytes()
    monkeypatch.setattr(sys, "byteorder", "big")
    assert index_build._aligned(column) == plain[3::-1] + plain[:3:-1]
    assert column.tobytes() == plain
    monkeypatch.undo()
    index = build(history(3))
    offsets, starts = index.segment_offsets[:], index.parent_starts[:]
    monkeypatch.setattr(sys, "byteorder", "big")
    other = Index(index.blocks)
    for swapped, column in ((other.segment_offsets[:], offsets), (other.parent_starts[:], starts)):
        swapped.byteswap()
        assert swapped == column


def test_a_base_elsewhere_keeps_what_the_writer_says() -> None:
    base = blob(TEXT)
    changed = blob(TEXT + b"changed\n")
    index = build([Revision(b"r", (), [(changed, base)])], lambda _kind, _key: Row(16, 39, 17))
    assert index.at(0).base == EXTERNAL
    assert index.external(0) == (0, base.key)
    assert index.row(0) == Row(17, 40, 18)


def test_what_the_caller_numbered_is_checked() -> None:
    """Numbers out of step would give an index that leads to other records."""
    base, changed = blob(TEXT), blob(TEXT + b"changed\n")
    segment = decode_segment(Revision(b"a", (), [(base, None), (changed, base)]).segment(), 0, KINDS)
    rows = [Row(), Row(8, 9, 7)]
    numbering = Numbering()
    builder = IndexBuilder(numbering=numbering)
    numbering.revisions.add(b"a")
    numbering.records.add(b"\0" + base.key)
    with pytest.raises(ValueError, match="1 records are numbered, expected 2"):
        builder.add_numbered(50, segment, rows, [-1, 0])
    numbering.records.add(b"\0" + changed.key)
    builder.add_numbered(50, segment, rows, [-1, 0])
    looked_up = IndexBuilder()
    looked_up.add(50, segment, iter([0, 7]))
    assert list(builder.finish(400, b"h" * 16)) == list(looked_up.finish(400, b"h" * 16))
    with pytest.raises(ValueError, match="has a segment in this pack already"):
        builder.add_numbered(50, segment, rows, [-1, 0])


def test_more_rows_than_a_column_can_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_build, "MAX_ROWS", 5)
    with pytest.raises(LimitExceeded, match="too many records of one pack: 7, at most 5 are allowed"):
        build(history(3))
    index = build(history(2))
    with pytest.raises(LimitExceeded, match="records of one pack: 10"):
        merge([index, index], 0, b"h" * 16)


def test_numbers_over_their_columns_stop_at_the_largest() -> None:
    base, changed = blob(TEXT), blob(TEXT + b"changed\n")
    index = build([Revision(b"r", (), [(changed, base)])], lambda _kind, _key: Row(300, 1 << 40, 1 << 40))
    assert index.row(0) == Row(255, 0xFFFFFFFF, 0xFFFFFFFF)


def test_merging_at_a_pace_stops_for_it_all_along() -> None:
    index = build(history(3 * PACED))
    calls: list[None] = []
    merged = b"".join(merge([index], 99, index.pack_hash, pace=lambda: calls.append(None)))
    assert merged == b"".join(merge([index], 99, index.pack_hash))
    assert len(calls) >= 3 + index.records // PACED


def test_a_revision_in_two_packs_is_refused() -> None:
    index = build(history(3))
    with pytest.raises(ValueError, match=r"revision revision-0000 has a segment in two packs"):
        merge([index, index], 0, b"h" * 16)


def test_rebuilding_needs_the_bases_that_lie_before() -> None:
    base = blob(TEXT)
    revision = Revision(b"r", (), [(blob(TEXT + b"changed\n"), base)])
    pack = packed([revision.segment()])
    with pytest.raises(CorruptFile, match=f"packs/1.pack .* its base {base.key.hex()} is in no pack before it"):
        rebuild(pack, nowhere)
    index = Index.of(rebuild(pack, lambda _kind, _key: Row(4, 7, 9)), "index")
    assert index.row(0) == Row(5, 8, 10)


def test_rebuilding_from_a_pack_that_holds_no_segments_of_its_kinds() -> None:
    pack = packed([Revision(b"r", (), [(note(b"k", b"x"), None)]).segment()], KINDS[:1])
    with pytest.raises(CorruptFile, match="kind 1, but the repository has 1"):
        rebuild(pack, nowhere)
