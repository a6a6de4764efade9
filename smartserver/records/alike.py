"""Finds the lengths of the common start and the common end of two texts, by comparing slices instead of bytes."""

from __future__ import annotations

from typing import Final, Literal

_LEFT: Final = 256
"""Bisection ends at this many bytes, which are compared as two numbers, in the time of 3 halvings instead of 8."""


def common_start(one: bytes, other: bytes, at: int = 0, other_at: int = 0) -> int:
    """Return the length of the common start of `one` from offset `at` on and `other` from offset `other_at` on."""
    low, high = 0, min(len(one) - at, len(other) - other_at)
    if high > _LEFT and one[at : at + _LEFT] != other[other_at : other_at + _LEFT]:
        high = _LEFT
    if high <= _LEFT:
        return high - _differing(one[at : at + high], other[other_at : other_at + high], "big")
    with memoryview(other) as view:
        while high - low > _LEFT:
            middle = (low + high + 1) // 2
            if one.startswith(view[other_at + low : other_at + middle], at + low):
                low = middle
            else:
                high = middle - 1
    return high - _differing(one[at + low : at + high], other[other_at + low : other_at + high], "big")


def common_end(one: bytes, other: bytes, most: int) -> int:
    """Return the length of the common end of both texts, at most `most`, which must not exceed either length."""
    end, other_end = len(one), len(other)
    low, high = 0, most
    if high > _LEFT and one[end - _LEFT : end] != other[other_end - _LEFT : other_end]:
        high = _LEFT
    with memoryview(other) as view:
        while high - low > _LEFT:
            middle = (low + high + 1) // 2
            if one.endswith(view[other_end - middle : other_end - low], 0, end - low):
                low = middle
            else:
                high = middle - 1
    return high - _differing(one[end - high : end - low], other[other_end - high : other_end - low], "little")


def _differing(one: bytes, other: bytes, order: Literal["big", "little"]) -> int:
    """Return the number of bytes from the first difference to the end (`big`), or from the start up to the last
    difference (`little`)."""
    return (int.from_bytes(one, order) ^ int.from_bytes(other, order)).bit_length() + 7 >> 3
