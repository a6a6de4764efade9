"""store.index: what is found in an index, and what is refused as one."""

from __future__ import annotations

import sys
from array import array

import pytest
from index_samples import build, content_of
from pack_samples import Revision, history, note

from smartserver.errors import CorruptFile
from smartserver.store import index_build
from smartserver.store.blocks import seal
from smartserver.store.index import Index, record_digest
from smartserver.store.index_build import IndexBuilder


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
