from __future__ import annotations

import pytest

from netem.effects import EFFECTS, Cut, Delay, Rate, Stall
from netem.effects.base import Effect, Ending, Parcel, parse_effect, register


def test_every_effect_is_registered_under_its_name() -> None:
    assert dict(EFFECTS) == {"cut": Cut, "delay": Delay, "rate": Rate, "stall": Stall}


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ("delay:50ms", Delay(0.05)),
        ("rate:1mbit", Rate(125_000)),
        ("cut:10", Cut(10)),
        ("stall:1kB:2s", Stall(1000, 2.0)),
    ],
)
def test_parse(text: str, effect: Effect) -> None:
    assert parse_effect(text) == effect


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("lose:3", "no effect 'lose'; there are cut, delay, rate, stall"),
        ("", "no effect ''"),
        ("delay", "'delay': expected delay:TIME"),
        ("stall:1:2s:3", r"expected stall:BYTES\[:TIME\]"),
        ("delay:5", "no unit of time"),
        ("cut:x", "not a size"),
    ],
)
def test_wrong_words_are_named(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_effect(text)


def test_a_name_has_one_owner() -> None:
    class Other(Delay):
        pass

    with pytest.raises(TypeError, match="effect 'delay' is already Delay"):
        register(Other)
    assert register(Delay) is Delay


def test_split_gives_the_ending_to_the_rest() -> None:
    head, rest = Parcel(b"abc", 5, 4, Ending.EOF, "tag").split(1)
    assert (bytes(head.content), head.ending, bytes(rest.content), rest.ending) == (
        b"a",
        Ending.MORE,
        b"bc",
        Ending.EOF,
    )
    assert (head.at, head.left, head.tag) == (rest.at, rest.left, rest.tag) == (5, 4, "tag")
