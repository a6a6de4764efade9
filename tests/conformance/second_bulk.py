"""Bodies that are bulk streams, for the second decoder: read from the specification alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zstandard

BODY, END = 2, 3
MAGIC = bytes.fromhex("28b52ffd")  # of zstd


def plain(said: Sequence[dict[int, bytes]], flags: int, calls: Sequence[Any]) -> list[bytes]:
    """What the bodies up and down of an exchange say; `said`: the payloads of each side by type of frame.

    Raises:
        ValueError: a bulk stream is not one whole frame.
    """
    bulks = flags & 32, any(verb == "Repository.pull" and arguments[9:10] == [True] for verb, arguments in calls)
    bodies = [side.get(BODY, b"") if END in side else b"" for side in said]  # without END it was broken off
    return [_content(data) if bulk and data else data for data, bulk in zip(bodies, bulks, strict=True)]


def _content(data: bytes) -> bytes:
    zstd = zstandard.ZstdDecompressor(max_window_size=1 << 23).decompressobj()
    content = zstd.decompress(data)
    if not zstd.eof or zstd.unused_data:
        raise ValueError("a bulk stream is one whole frame")
    return content
