from __future__ import annotations

import dataclasses
import pkgutil

import pytest

import netem.effects
from netem.effects import (
    EFFECTS,
    Blackhole,
    Corrupt,
    Cut,
    Delay,
    Duplicate,
    Jitter,
    Loss,
    Rate,
    Stall,
)
from netem.effects.base import Effect, Parcel, parse_effect, register
from netem.link import Link
from netem.packets.network import Packets
from netem.proxy import Proxy
from netem.simulated import SimulatedNetwork


def test_every_effect_is_registered_under_its_name() -> None:
    modules = {each.name for each in pkgutil.iter_modules(netem.effects.__path__)} - {"base", "beyond", "chance"}
    assert sorted(EFFECTS) == sorted(modules), "import it in netem/effects/__init__.py"
    for name, effect in EFFECTS.items():
        assert effect.__module__ == f"netem.effects.{name}", "a module is called as its effect"


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ("delay:50ms", Delay(0.05)),
        ("rate:1mbit", Rate(125_000)),
        ("cut:10", Cut(10)),
        ("rate:1mbit:64KiB", Rate(125_000, 65536)),
        ("stall:1MB", Stall(1_000_000)),
        ("stall:1kB:2s", Stall(1000, 2.0)),
        ("blackhole", Blackhole()),
        ("blackhole:1kB", Blackhole(1000)),
        ("jitter:5ms", Jitter(0.005)),
        ("jitter:5ms:reorder", Jitter(0.005, ordered=False)),
        ("loss:1%", Loss(0.01)),
        ("duplicate:0.5", Duplicate(0.5)),
        ("corrupt:0.1%", Corrupt(0.001)),
    ],
)
def test_parse(text: str, effect: Effect) -> None:
    assert parse_effect(text) == effect


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("lose:3", f"no effect 'lose'; there are {', '.join(sorted(EFFECTS))}$"),
        ("", "no effect ''"),
        ("delay", "'delay': expected delay:TIME"),
        ("stall:1:2s:3", r"expected stall:BYTES\[:TIME\]"),
        ("delay:5", "no unit of time"),
        ("cut:x", "not a size"),
        ("loss:many", "'many' is not a share; write for example 1% or 0.01"),
        ("loss:101%", "is not a share"),
        ("jitter:5ms:order", "'order': expected reorder, or nothing"),
    ],
)
def test_wrong_words_are_named(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_effect(text)


@pytest.mark.parametrize(
    ("kind", "arguments", "why"),
    [
        (Blackhole, (-1,), "0 or more"),
        (Cut, (-1,), "0 or more"),
        (Stall, (-1,), "0 or more"),
        (Stall, (0, -1), "from 0 on"),
        (Jitter, (-1,), "from 0 on"),
        (Rate, (1, -1), "a queue of -1 bytes: expected 0 or more"),
        *[(Rate, (rate,), "expected more than 0, and an end") for rate in (0.0, -1.0, float("inf"), float("nan"))],
        *[(Loss, (share,), "loss with a probability of .*: expected 0 to 1") for share in (-0.1, 1.1, float("nan"))],
    ],
)
def test_an_effect_that_cannot_be_is_refused(kind: type[Effect], arguments: tuple[float, ...], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        kind(*arguments)


def test_a_name_has_one_owner() -> None:
    class Other(Delay):
        pass

    with pytest.raises(TypeError, match="effect 'delay' is already Delay"):
        register(Other)
    assert register(Delay) is Delay


def example(effect: type[Effect]) -> Effect:
    """One of them: 0.1 for each field without a default that is a float, 1 for each other."""
    assert dataclasses.is_dataclass(effect)
    needed = [field for field in dataclasses.fields(effect) if field.default is dataclasses.MISSING]
    return effect(**{field.name: 0.1 if field.type == "float" else 1 for field in needed})


BY_THEIR_ARGUMENTS = [Jitter(0.1, ordered=False), Rate(0.1, 5)]
"""Effects whose classes have a meaning for streams, and they have none."""

EVERY = [*map(example, EFFECTS.values()), *BY_THEIR_ARGUMENTS]
NOT_OF_STREAMS = [effect for effect in EVERY if not effect.of_streams or effect in BY_THEIR_ARGUMENTS]
NOT_OF_PACKETS = [effect for effect in EVERY if not effect.of_packets]


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize("effect", EVERY, ids=repr)
def test_where_an_effect_means_nothing_it_is_refused(effect: Effect, up: bool) -> None:
    link = Link(0.1, up=[effect] if up else [], down=[] if up else [effect])
    if effect in NOT_OF_STREAMS:
        refused = pytest.raises(ValueError, match=f"{effect.name}.* is of packets, .*use `netem run`")
        with refused:
            SimulatedNetwork(link)
        with refused:
            Proxy(0.1, ("", 1), up=link.up, down=link.down)
    else:
        link.check_streams()
    if effect in NOT_OF_PACKETS:
        with pytest.raises(ValueError, match=f"{effect.name} is of streams of bytes, .*use `netem proxy`"):
            Packets(link).start()
    else:
        link.check_packets()


@pytest.mark.parametrize("effect", [effect for effect in EVERY if effect not in NOT_OF_PACKETS], ids=repr)
def test_packets_stay_whole(effect: Effect) -> None:
    """Whatever an effect does, a packet that comes out has the length of one that came in."""
    stage = effect.begin_packets()
    out = [parcel for size in (1500, 40, 700) for parcel in stage(Parcel(bytes(size), 0, 0))]
    assert {len(parcel.content) for parcel in out} <= {1500, 40, 700}
