"""netem.effects.stall, netem.effects.blackhole, netem.effects.cut: what becomes of the bytes after so many."""

from __future__ import annotations

import pytest
from effects_cases import MS, packets_through, through

from netem.effects import Blackhole, Cut, Effect, Ending, Parcel, Stall

MORE, EOF, CUT = Ending


@pytest.mark.parametrize("effect", [Stall(4), Blackhole(4)])
def test_nothing_arrives_after_so_many_bytes(effect: Effect) -> None:
    out = through(effect, (0, b"abc"), (1, b"def"), (2, b"g"), (3, b"", EOF))
    assert out == [(0, b"abc", MORE), (1, b"d", MORE), (-1, b"ef", MORE), (-1, b"g", MORE), (-1, b"", EOF)]


def test_for_a_time_from_the_first_byte_held() -> None:
    out = through(Stall(3, 0.1), (0, b"abc"), (10, b"d"), (50, b"e"), (200, b"f"))
    assert out == [(0, b"abc", MORE), (110, b"d", MORE), (110, b"e", MORE), (200, b"f", MORE)]


def test_the_end_of_a_shorter_stream_passes() -> None:
    assert through(Stall(4), (0, b"abc"), (1, b"", EOF)) == [(0, b"abc", MORE), (1, b"", EOF)]


def test_held_bytes_stay_with_the_sender() -> None:
    (parcel,) = Stall(0, 0.1).begin()(Parcel(b"a", 0, 0))
    assert parcel.left == 100 * MS


def test_whole_packets() -> None:
    out = packets_through(Stall(7, 0.1), (0, b"abcd"), (10, b"efgh"), (20, b"i"), (200, b"j"))
    assert out == [(0, b"abcd"), (110, b"efgh"), (110, b"i"), (200, b"j")]
    assert packets_through(Stall(4), (0, b"abcd"), (1, b"e")) == [(0, b"abcd"), (-1, b"e")]


def test_the_sender_believes_a_black_hole() -> None:
    (parcel,) = Blackhole().begin()(Parcel(b"a", 3, 3))
    assert parcel.left == 3


def test_whole_packets_are_swallowed() -> None:
    assert packets_through(Blackhole(7), (0, b"abcd"), (1, b"efgh"), (2, b"i")) == [(0, b"abcd")]
    assert packets_through(Blackhole(8), (0, b"abcd"), (1, b"efgh"), (2, b"i")) == [(0, b"abcd"), (1, b"efgh")]
    assert packets_through(Blackhole(), (0, b"a")) == []


@pytest.mark.parametrize("after", range(8))
def test_a_cut_lets_exactly_so_many_bytes_out(after: int) -> None:
    out = through(Cut(after), (0, b"abc"), (1, b"defg"), (2, b"hij"), (3, b"", EOF))
    assert b"".join(data for _, data, _ in out) == b"abcdefghij"[:after]
    assert [ending for _, _, ending in out].count(CUT) == 1
    assert out[-1][2] is CUT


def test_the_cut_comes_with_the_last_byte_that_passes() -> None:
    assert through(Cut(3), (0, b"abc"), (1, b"d")) == [(0, b"abc", CUT)]
