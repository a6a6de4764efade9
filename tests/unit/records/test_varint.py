"""LEB128 in the shortest form."""

from __future__ import annotations

import pytest

from smartserver.records.varint import MAX_BYTES, Malformed, decode, encode

CASES = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (16383, "ff7f"),
    (16384, "808001"),
    (2**31 - 1, "ffffffff07"),
    (2**63 - 1, "ffffffffffffffff7f"),
]


@pytest.mark.parametrize(("n", "form"), CASES)
def test_both_ways(n: int, form: str) -> None:
    raw = bytes.fromhex(form)
    assert encode(n) == raw
    assert decode(raw, 0) == (n, len(raw))
    assert decode(memoryview(b"xx" + raw + b"yy"), 2) == (n, 2 + len(raw))


@pytest.mark.parametrize("n", [-1, 2**63])
def test_no_such_integer(n: int) -> None:
    with pytest.raises(ValueError, match="63 bits"):
        encode(n)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "cut off"),
        (b"\x80", "cut off"),
        (b"\xff\xff", "cut off"),
        (b"\x80\x00", "shortest"),
        (b"\xff\x80\x00", "shortest"),
        (b"\x80" * MAX_BYTES + b"\x01", "63 bits"),
        (b"\xff" * 20, "63 bits"),
    ],
)
def test_malformed(raw: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why) as caught:
        decode(b"..." + raw, 3)
    assert caught.value.offset == 3
    assert str(caught.value).startswith("malformed at byte 3: ")
