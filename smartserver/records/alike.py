"""How much two texts begin and end with in common; all of it is done in slices, none of it byte by byte or copied."""

from __future__ import annotations


def common_start(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    low, high = 0, min(len(one), len(other))
    with memoryview(other) as view:
        while low < high:
            middle = (low + high + 1) // 2
            if one.startswith(view[low:middle], low):
                low = middle
            else:
                high = middle - 1
    return low


def common_end(one: bytes, other: bytes, most: int) -> int:
    """How many bytes both end with, `most` at most."""
    end, other_end = len(one), len(other)
    low, high = 0, most
    with memoryview(other) as view:
        while low < high:
            middle = (low + high + 1) // 2
            if one.endswith(view[other_end - middle : other_end - low], 0, end - low):
                low = middle
            else:
                high = middle - 1
    return low
