from __future__ import annotations

import pytest
from effects_cases import MS, packets_through, through

from netem.effects import Ending, Parcel
from netem.effects.stall import Stall

MORE, EOF, CUT = Ending


def test_for_ever() -> None:
    out = through(Stall(4), (0, b"abc"), (1, b"def"), (2, b"g"), (3, b"", EOF))
    assert out == [(0, b"abc", MORE), (1, b"d", MORE), (-1, b"ef", MORE), (-1, b"g", MORE), (-1, b"", EOF)]


def test_for_a_time_from_the_first_byte_held() -> None:
    out = through(Stall(3, 0.1), (0, b"abc"), (10, b"d"), (50, b"e"), (200, b"f"))
    assert out == [(0, b"abc", MORE), (110, b"d", MORE), (110, b"e", MORE), (200, b"f", MORE)]


def test_the_end_of_a_shorter_stream_passes() -> None:
    assert through(Stall(4), (0, b"abc"), (1, b"", EOF)) == [(0, b"abc", MORE), (1, b"", EOF)]


def test_held_bytes_stay_with_the_sender() -> None:
    (parcel,) = Stall(0, 0.1).begin()(Parcel(b"a", 0, 0))
    assert parcel.left == 100 * MS


def test_arguments() -> None:
    assert Stall.parse("1MB") == Stall(1_000_000)
    assert Stall.parse("1MB", "5s") == Stall(1_000_000, 5.0)
    with pytest.raises(ValueError, match="0 or more"):
        Stall(-1)
    with pytest.raises(ValueError, match="from 0 on"):
        Stall(0, -1)


def test_whole_packets() -> None:
    out = packets_through(Stall(7, 0.1), (0, b"abcd"), (10, b"efgh"), (20, b"i"), (200, b"j"))
    assert out == [(0, b"abcd"), (110, b"efgh"), (110, b"i"), (200, b"j")]
    assert packets_through(Stall(4), (0, b"abcd"), (1, b"e")) == [(0, b"abcd"), (-1, b"e")]
