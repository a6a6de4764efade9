from __future__ import annotations

import pytest
from effects_cases import packets_through, through

from netem.effects import Ending, Parcel
from netem.effects.blackhole import Blackhole

MORE, EOF, _ = Ending


def test_nothing_arrives_after_so_many_bytes() -> None:
    out = through(Blackhole(4), (0, b"abc"), (1, b"def"), (2, b"g"), (3, b"", EOF))
    assert out == [(0, b"abc", MORE), (1, b"d", MORE), (-1, b"ef", MORE), (-1, b"g", MORE), (-1, b"", EOF)]


def test_the_sender_believes_that_all_is_well() -> None:
    (parcel,) = Blackhole().begin()(Parcel(b"a", 3, 3))
    assert parcel.left == 3


def test_whole_packets_are_swallowed() -> None:
    assert packets_through(Blackhole(7), (0, b"abcd"), (1, b"efgh"), (2, b"i")) == [(0, b"abcd")]
    assert packets_through(Blackhole(8), (0, b"abcd"), (1, b"efgh"), (2, b"i")) == [(0, b"abcd"), (1, b"efgh")]
    assert packets_through(Blackhole(), (0, b"a")) == []


def test_arguments() -> None:
    assert Blackhole.parse("64KiB") == Blackhole(65536)
    with pytest.raises(ValueError, match="0 or more"):
        Blackhole(-1)
