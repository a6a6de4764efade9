"""store.index: what is found in an index, and what is refused as one."""

from __future__ import annotations

import sys
from array import array

import pytest
from index_samples import TEXT, build, content_of
from pack_samples import KINDS, Revision, blob, history, note

from smartserver.errors import CorruptFile
from smartserver.records.model import Parent
from smartserver.records.segment import decode_segment
from smartserver.store import index as index_module
from smartserver.store import index_build
from smartserver.store.blocks import seal
from smartserver.store.index import OUTSIDE, Index, record_digest
from smartserver.store.index_build import IndexBuilder, fanout_bits


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
            assert index.at(row).segment == ordinal
            assert index.at(row).frame_offset == frame_at
            assert index.at(row).frame_length == entry.frame_length
            assert index.at(row).length == entry.length
            assert encoded[index.at(row).header_offset - at] == entry.kind
            frame_at += entry.frame_length
        at += len(encoded)
    assert index.segment_offsets[9] == at
    assert index.segment_of(b"revision-0009") is None
    assert index.segment_of(b"") is None
    assert not index.find(0, b"note-1")
    assert not index.find(1, b"note-9")


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
    assert [index.at(row).segment for row in rows] == [0, 1, 2, 3, 4]
    (row,) = index.find(1, b"z")
    assert index.at(row).base == rows[0]


def test_absent_parents_are_no_edges_and_outside_ones_are_listed() -> None:
    revisions = [
        Revision(b"a", (Parent(b"x"), Parent(b"ghost", True), Parent(b"y"))),
        Revision(b"b", (Parent(b"a"), Parent(b"x"))),
    ]
    index = build(revisions)
    assert index.outside == (b"x", b"y")
    assert index.parents(0) == [OUTSIDE, OUTSIDE | 1]
    assert index.parents(1) == [0, OUTSIDE]


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
            assert index.at(row).segment == group
            assert not index.find(2, b"%d-%d" % (group, number))


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
    assert not index.find(0, b"k")
    assert index.segment_of(b"r") is None
    assert index.segment_offsets[0] == 24


def test_each_byte_flipped_is_an_error_with_the_files_name() -> None:
    base = blob(TEXT)
    revision = Revision(b"r", (Parent(b"x"),), [(blob(TEXT + b"!"), base), (note(b"k", b"x"), None)])
    content = bytearray(content_of([revision]))
    for at in range(len(content)):
        content[at] ^= 0x10
        with pytest.raises(CorruptFile, match=r"packs/1\.idx at byte \d+"):
            Index.of(bytes(content), "packs/1.idx")
        content[at] ^= 0x10
    for cut in range(len(content)):
        with pytest.raises(CorruptFile, match=r"packs/1\.idx at byte \d+"):
            Index.of(bytes(content[:cut]), "packs/1.idx")
    assert Index.of(bytes(content), "packs/1.idx").records == 2


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
