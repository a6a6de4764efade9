"""LEB128: unsigned integers in groups of seven bits, the lowest first. Only the shortest form is valid."""

from __future__ import annotations

from typing import Final

MAX_BYTES: Final = 9
"""The most bytes of an integer. Nine groups hold 63 bits, more than any length or count needs, and every value fits
into a signed 64-bit integer."""

_SMALL: Final = tuple(bytes((n,)) for n in range(0x80))


class Malformed(ValueError):
    """The bytes do not have the expected format. `offset`: counted from the start of the buffer that was read."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(offset, why)
        self.offset = offset
        self.why = why

    def __str__(self) -> str:
        return f"malformed at byte {self.offset}: {self.why}"


def encode(n: int) -> bytes:
    """Encode `n` in its shortest form.

    Raises:
        ValueError: `n` is negative or has more than 63 bits.
    """
    if 0 <= n < 0x80:
        return _SMALL[n]
    if 0 < n < 0x4000:
        return bytes((n & 0x7F | 0x80, n >> 7))
    if n < 0 or n >> 7 * MAX_BYTES:
        raise ValueError(f"{n} is not an unsigned integer of 63 bits")
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def decode(buf: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """Decode the integer at the offset `at` of `buf`. Return it and the offset after it.

    Raises:
        Malformed: the integer is cut off, has more than 63 bits, or is not in its shortest form.
    """
    end = len(buf)
    if at >= end:
        raise Malformed(at, "an integer is cut off")
    n = buf[at]
    if n < 0x80:
        return n, at + 1
    n &= 0x7F
    if at + 1 < end and 0 < (byte := buf[at + 1]) < 0x80:  # Most others have two bytes.
        return n | byte << 7, at + 2
    shift = 7
    for i in range(at + 1, at + MAX_BYTES):
        if i >= end:
            raise Malformed(at, "an integer is cut off")
        byte = buf[i]
        n |= (byte & 0x7F) << shift
        if byte < 0x80:
            if not byte:
                raise Malformed(at, "an integer is not in its shortest form")
            return n, i + 1
        shift += 7
    raise Malformed(at, "an integer has more than 63 bits")
