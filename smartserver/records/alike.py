"""How much two texts begin and end with in common; all of it is done in slices, none of it byte by byte or copied."""

from __future__ import annotations


def common_start(one: bytes, other: bytes, at: int = 0, other_at: int = 0, *, within: int = 1) -> int:
    """How many bytes both have in common from there on; perhaps less than `within` more."""
    low, high = 0, min(len(one) - at, len(other) - other_at)
    with memoryview(other) as view:
        while high - low >= within:
            middle = (low + high + 1) // 2
            if one.startswith(view[other_at + low : other_at + middle], at + low):
                low = middle
            else:
                high = middle - 1
    return low


def common_end(one: bytes, other: bytes, most: int, *, within: int = 1) -> int:
    """How many bytes both end with, `most` at most; perhaps less than `within` more."""
    end, other_end = len(one), len(other)
    low, high = 0, most
    with memoryview(other) as view:
        while high - low >= within:
            middle = (low + high + 1) // 2
            if one.endswith(view[other_end - middle : other_end - low], 0, end - low):
                low = middle
            else:
                high = middle - 1
    return low
