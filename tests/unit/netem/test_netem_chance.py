"""netem.effects.chance and netem.effects.loss, netem.effects.duplicate, netem.effects.corrupt: the same each time."""

from __future__ import annotations

import pytest
from effects_cases import packets_through, through
from hypothesis import given
from hypothesis import strategies as st

from netem.effects import Ending
from netem.effects.chance import ByChance
from netem.effects.corrupt import HEADERS, Corrupt
from netem.effects.duplicate import Duplicate
from netem.effects.loss import Loss
from netem.tcp_model import SEGMENT

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
