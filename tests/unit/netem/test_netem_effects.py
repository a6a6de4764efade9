"""netem.effects: the words of each, where it means something, and what it does to bytes and packets."""

from __future__ import annotations

import dataclasses
import pkgutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

import netem.effects
from netem.effects import (
    EFFECTS,
    Blackhole,
    Corrupt,
    Cut,
    Delay,
    Duplicate,
    Effect,
    Ending,
    Jitter,
    Loss,
    Parcel,
    Rate,
    Stall,
)
from netem.effects.base import parse_effect, register
from netem.effects.chance import ByChance
from netem.effects.corrupt import HEADERS
from netem.effects.rate import GRAIN, QUEUE_BYTES
from netem.link import Link
from netem.packets.network import Packets
from netem.proxy import Proxy
from netem.simulated import SimulatedNetwork
from netem.tcp_model import SEGMENT
from netem.units import NEVER

MS = 1_000_000


def packets_through(effect: Effect, *entering: tuple[int, bytes]) -> list[tuple[int, bytes]]:
    """(ms, packet) of what comes out when packets enter one after the other; -1: never."""
    stage = effect.begin_packets()
    return [
        (-1 if parcel.stuck else parcel.at // MS, bytes(parcel.content))
        for at, packet in entering
        for parcel in stage(Parcel(packet, at * MS, at * MS))
    ]


def through(
    effect: Effect, *entering: tuple[int, bytes] | tuple[int, bytes, Ending]
) -> list[tuple[int, bytes, Ending]]:
    """(ms, bytes, ending) of what comes out when (ms, bytes[, ending]) enter one after the other; -1: never."""
    stage = effect.begin()
    out: list[tuple[int, bytes, Ending]] = []
    for at, data, *ending in entering:
        for parcel in stage(Parcel(data, at * MS, at * MS, ending[0] if ending else Ending.MORE)):
            out.append((-1 if parcel.stuck else parcel.at // MS, bytes(parcel.content), parcel.ending))
    return out


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


PACKETS = [(n, n.to_bytes(2) * 50) for n in range(2000)]


@pytest.mark.parametrize("kind", [Loss, Duplicate, Corrupt])
def test_a_share_of_all_packets_and_with_one_seed_the_same(kind: type[ByChance]) -> None:
    def touched(effect: ByChance) -> set[int]:
        out = packets_through(effect, *PACKETS)
        return {at for at, packet in PACKETS if out.count((at, packet)) != 1}

    some = touched(kind(0.1, seed=3))
    assert some == touched(kind(0.1, seed=3)) != touched(kind(0.1, seed=4))
    assert 150 < len(some) < 250
    assert touched(kind(0)) == set()
    assert len(touched(kind(1))) == len(PACKETS)


@given(st.binary(max_size=200), st.integers(0, 100))
def test_one_bit_is_changed(content: bytes, seed: int) -> None:
    for out, first in (
        (through(Corrupt(1, seed), (0, content))[0][1], 0),
        (packets_through(Corrupt(1, seed), (0, content))[0][1], HEADERS),
    ):
        changed = [at for at, (was, now) in enumerate(zip(content, out, strict=True)) if was != now]
        assert len(changed) == (len(content) > first)
        assert all(at >= first and (content[at] ^ out[at]).bit_count() == 1 for at in changed)


def test_of_a_stream_each_segment_may_be_hit() -> None:
    content = bytes(3 * SEGMENT + 1)
    out = through(Corrupt(1), (0, content, Ending.EOF))
    assert [(len(piece), ending) for _, piece, ending in out] == [(SEGMENT, Ending.MORE)] * 3 + [(1, Ending.EOF)]
    assert all(sum(byte.bit_count() for byte in piece) == 1 for _, piece, _ in out)


def test_how_much_was_sent_at_once_does_not_matter_as_long_as_segments_are_whole() -> None:
    def bulk(*segments: int) -> bytes:
        return b"".join(out for _, out, _ in through(Corrupt(0.1), *((0, bytes(n * SEGMENT)) for n in segments)))

    assert bulk(1000) == bulk(1, 99, 400, 500)
    assert 50 < sum(byte.bit_count() for byte in bulk(1000)) < 150


SOME = PACKETS[:500]


@given(st.integers(0, 20), st.booleans(), st.integers(0, 100))
def test_no_earlier_and_no_later_than_it_may(most: int, ordered: bool, seed: int) -> None:
    out = packets_through(Jitter(most / 2000, ordered=ordered, seed=seed), *SOME)
    assert sorted(packet for _, packet in out) == [packet for _, packet in SOME]
    for (entered, _), (left, _) in zip(SOME, out, strict=True):
        assert entered <= left <= entered + most


def test_order_is_kept_or_not() -> None:
    kept = [at for at, _ in packets_through(Jitter(0.01), *SOME)]
    free = [at for at, _ in packets_through(Jitter(0.01, ordered=False), *SOME)]
    assert kept == sorted(kept)
    assert free != sorted(free)
    assert packets_through(Jitter(0.01, seed=1), *SOME) != packets_through(Jitter(0.01, seed=2), *SOME)


def test_the_sender_does_not_wait_and_what_is_stuck_stays() -> None:
    stage = Jitter(0.01).begin()
    (parcel,) = stage(Parcel(b"a", 3 * MS, 3 * MS))
    assert parcel.left == 3 * MS
    (stuck,) = stage(Parcel(b"a", NEVER, NEVER))
    assert stuck.at == NEVER


def test_bytes_leave_one_after_the_other() -> None:
    out = through(Rate(1000), (0, b"x" * 100), (0, b"y" * 50), (500, b"z"), (500, b"", Ending.EOF))
    assert [(at, len(data)) for at, data, _ in out] == [(100, 100), (150, 50), (501, 1), (501, 0)]


@given(st.lists(st.integers(0, 50_000), max_size=8), st.floats(1000, 1e9))
def test_nothing_is_lost_and_the_time_is_bytes_over_rate(sizes: list[int], rate: float) -> None:
    stage = Rate(rate).begin()
    out = [p for n, size in enumerate(sizes) for p in stage(Parcel(bytes([n]) * size, 0, 0))]
    assert b"".join(out_parcel.content for out_parcel in out) == b"".join(
        bytes([n]) * size for n, size in enumerate(sizes)
    )
    assert all(len(p.content) <= max(SEGMENT, rate * GRAIN) for p in out)
    if out:
        assert out[-1].at / 1e9 == pytest.approx(sum(sizes) / rate, abs=1e-6)
        assert [p.at for p in out] == sorted(p.at for p in out)
        assert all(p.left == p.at for p in out if p.content)


def test_packets_leave_one_after_the_other_and_a_queue_of_a_second_or_64_kib_drops() -> None:
    out = packets_through(Rate(1000, 150), *[(0, bytes([n]) * 100) for n in range(5)], (1000, b"x"))
    assert [(at, packet[:1]) for at, packet in out] == [(100, b"\0"), (200, b"\1"), (1001, b"x")]
    slow = packets_through(Rate(1000), *[(0, bytes(1000))] * 100)
    assert len(slow) == QUEUE_BYTES // 1000 + 1
    fast = packets_through(Rate(1_000_000), *[(0, bytes(1000))] * 2000)
    assert len(fast) == 1001


MORE, EOF, CUT = Ending


@pytest.mark.parametrize("effect", [Stall(4), Blackhole(4)])
def test_nothing_arrives_after_so_many_bytes(effect: Effect) -> None:
    out = through(effect, (0, b"abc"), (1, b"def"), (2, b"g"), (3, b"", EOF))
    assert out == [(0, b"abc", MORE), (1, b"d", MORE), (-1, b"ef", MORE), (-1, b"g", MORE), (-1, b"", EOF)]


def test_for_a_time_from_the_first_byte_held_and_a_shorter_stream_ends() -> None:
    out = through(Stall(3, 0.1), (0, b"abc"), (10, b"d"), (50, b"e"), (200, b"f"))
    assert out == [(0, b"abc", MORE), (110, b"d", MORE), (110, b"e", MORE), (200, b"f", MORE)]
    assert through(Stall(4), (0, b"abc"), (1, b"", EOF)) == [(0, b"abc", MORE), (1, b"", EOF)]


def test_held_bytes_stay_with_the_sender_who_believes_a_black_hole() -> None:
    (parcel,) = Stall(0, 0.1).begin()(Parcel(b"a", 0, 0))
    assert parcel.left == 100 * MS
    (parcel,) = Blackhole().begin()(Parcel(b"a", 3, 3))
    assert parcel.left == 3


def test_whole_packets_are_held_or_swallowed() -> None:
    out = packets_through(Stall(7, 0.1), (0, b"abcd"), (10, b"efgh"), (20, b"i"), (200, b"j"))
    assert out == [(0, b"abcd"), (110, b"efgh"), (110, b"i"), (200, b"j")]
    assert packets_through(Stall(4), (0, b"abcd"), (1, b"e")) == [(0, b"abcd"), (-1, b"e")]
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
