"""How much two texts begin and end with in common; all of it is done in slices, none of it byte by byte."""

from __future__ import annotations


def common_start(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def common_end(one: bytes, other: bytes, most: int) -> int:
    """How many bytes both end with, `most` at most."""
    end, other_end = len(one), len(other)
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if one[end - middle : end - low] == other[other_end - middle : other_end - low]:
            low = middle
        else:
            high = middle - 1
    return low
