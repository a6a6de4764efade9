from __future__ import annotations

from collections.abc import Iterable

import pytest

from netem.effects import Ending, Parcel, Stage
from netem.effects.beyond import beyond, packets_beyond


def marked(parcel: Parcel) -> Iterable[Parcel]:
    parcel.tag = "beyond"
    return (parcel,)


def after(stage: Stage, *contents: bytes) -> list[tuple[bytes, bool]]:
    """What comes out, and whether it was beyond; the stream ends with it."""
    entering = [Parcel(content, 0, 0) for content in contents] + [Parcel(b"", 0, 0, Ending.EOF)]
    return [(bytes(out.content), out.tag == "beyond") for parcel in entering for out in stage(parcel)]


@pytest.mark.parametrize(
    ("spared", "out"),
    [
        (0, [(b"abc", True), (b"", True), (b"def", True), (b"", True)]),
        (2, [(b"ab", False), (b"c", True), (b"", True), (b"def", True), (b"", True)]),
        (3, [(b"abc", False), (b"", True), (b"def", True), (b"", True)]),
        (4, [(b"abc", False), (b"", False), (b"d", False), (b"ef", True), (b"", True)]),
        (6, [(b"abc", False), (b"", False), (b"def", False), (b"", True)]),
        (7, [(b"abc", False), (b"", False), (b"def", False), (b"", False)]),
    ],
)
def test_a_stream_is_split_there(spared: int, out: list[tuple[bytes, bool]]) -> None:
    assert after(beyond(spared, marked), b"abc", b"", b"def") == out


@pytest.mark.parametrize(("spared", "passed"), [(0, 0), (2, 0), (3, 1), (5, 1), (6, 2)])
def test_a_packet_stays_whole_and_nothing_passes_after_one_that_did_not(spared: int, passed: int) -> None:
    out = after(packets_beyond(spared, marked), b"abc", b"def", b"g")[:3]
    assert out == [(content, number >= passed) for number, content in enumerate((b"abc", b"def", b"g"))]


def test_what_is_swallowed_is_gone() -> None:
    assert after(beyond(1, lambda _: ()), b"abc", b"def") == [(b"a", False)]
