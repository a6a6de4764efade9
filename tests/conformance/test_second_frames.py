"""Frames of hunks as the writer makes them, read by the second decoder."""

from __future__ import annotations

import pytest
from second_frames import text_of

from smartserver.records.delta import pack_hunks
from smartserver.records.hunks import encode_hunks
from smartserver.records.segment import ZSTD_HUNKS

BASE = b"".join(b"line %d\n" % n for n in range(5000))


@pytest.mark.parametrize("added", [b"", b"a line\n", b"many lines\n" * 3000])
def test_a_text_is_what_the_base_and_its_hunks_make(added: bytes) -> None:
    encoding, frame = pack_hunks(encode_hunks([(0, 7, added), (300, 300, b"x"), (20_000, 20_500, added)]))
    assert (encoding == ZSTD_HUNKS) == (len(added) > 100)
    text = added + BASE[7:300] + b"x" + BASE[300:20_000] + added + BASE[20_500:]
    assert text_of(encoding, frame, BASE) == text
