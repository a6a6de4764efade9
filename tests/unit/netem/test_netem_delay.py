from __future__ import annotations

import pytest
from effects_cases import MS, through

from netem.effects import Ending, Parcel
from netem.effects.delay import Delay
from netem.units import NEVER


def test_everything_comes_out_later_by_the_same_time() -> None:
    out = through(Delay(0.05), (0, b"a"), (7, b"b"), (9, b"", Ending.EOF))
    assert out == [(50, b"a", Ending.MORE), (57, b"b", Ending.MORE), (59, b"", Ending.EOF)]


def test_bytes_under_way_have_left_the_sender() -> None:
    (parcel,) = Delay(0.05).begin()(Parcel(b"a", 3 * MS, 3 * MS))
    assert parcel.left == 3 * MS


def test_what_never_comes_is_not_delayed_further() -> None:
    (parcel,) = Delay(0.05).begin()(Parcel(b"a", NEVER, NEVER))
    assert parcel.at == NEVER


def test_arguments() -> None:
    assert Delay.parse("50ms") == Delay(0.05)
    with pytest.raises(ValueError, match="from 0 on"):
        Delay(-1)
