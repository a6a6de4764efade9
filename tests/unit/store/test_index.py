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
from smartserver.store import index_build
from smartserver.store.blocks import seal
from smartserver.store.index import Index, record_digest
from smartserver.store.index_build import IndexBuilder


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
