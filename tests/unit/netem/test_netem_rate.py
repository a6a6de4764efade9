from __future__ import annotations

import pytest
from effects_cases import packets_through, through
from hypothesis import given
from hypothesis import strategies as st

from netem.effects import Ending, Parcel
from netem.effects.rate import GRAIN, QUEUE_BYTES, Rate
from netem.tcp_model import SEGMENT


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


def test_packets_leave_one_after_the_other_and_the_queue_drops() -> None:
    out = packets_through(Rate(1000, 150), *[(0, bytes([n]) * 100) for n in range(5)], (1000, b"x"))
    assert [(at, packet[:1]) for at, packet in out] == [(100, b"\0"), (200, b"\1"), (1001, b"x")]


def test_the_queue_is_a_second_or_64_kib() -> None:
    slow = packets_through(Rate(1000), *[(0, bytes(1000))] * 100)
    assert len(slow) == QUEUE_BYTES // 1000 + 1
    fast = packets_through(Rate(1_000_000), *[(0, bytes(1000))] * 2000)
    assert len(fast) == 1001
