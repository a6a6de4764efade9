"""store.open_pack: ranges of segments are read as they lie, in pieces of any size."""

from __future__ import annotations

import pytest
from pack_samples import opened, stored

from smartserver.store.open_pack import SegmentReader


def test_ranges_are_read_as_they_lie() -> None:
    made = stored([3, 2, 4])
    snapshot = opened(made)
    segments = [revision.segment() for revision in made.revisions]
    for ranges in ([(0, 9)], [(2, 3)], [(2, 6)], [(0, 1), (4, 5), (8, 9)], [(1, 4), (6, 9)], []):
        expected = b"".join(segments[ordinal] for start, stop in ranges for ordinal in range(start, stop))
        assert snapshot.size(ranges) == len(expected)
        for size in (1, 7, 1000, 1 << 20):
            reader = snapshot.read_ranges(ranges)
            assert isinstance(reader, SegmentReader)
            read = []
            while chunk := reader.read(size):
                assert len(chunk) == size or reader.left == 0
                read.append(chunk)
            assert b"".join(read) == expected
    assert [snapshot.read_ranges([(ordinal, ordinal + 1)]).read(1 << 20) for ordinal in range(9)] == segments
    with pytest.raises(IndexError):
        snapshot.size([(8, 10)])
