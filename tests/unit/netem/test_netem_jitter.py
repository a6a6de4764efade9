from __future__ import annotations

from effects_cases import MS, packets_through
from hypothesis import given
from hypothesis import strategies as st

from netem.effects import Parcel
from netem.effects.jitter import Jitter
from netem.units import NEVER

PACKETS = [(n, n.to_bytes(2)) for n in range(500)]


@given(st.integers(0, 20), st.booleans(), st.integers(0, 100))
def test_no_earlier_and_no_later_than_it_may(most: int, ordered: bool, seed: int) -> None:
    out = packets_through(Jitter(most / 2000, ordered=ordered, seed=seed), *PACKETS)
    assert sorted(packet for _, packet in out) == [packet for _, packet in PACKETS]
    for (entered, _), (left, _) in zip(PACKETS, out, strict=True):
        assert entered <= left <= entered + most


def test_order_is_kept_or_not() -> None:
    kept = [at for at, _ in packets_through(Jitter(0.01), *PACKETS)]
    free = [at for at, _ in packets_through(Jitter(0.01, ordered=False), *PACKETS)]
    assert kept == sorted(kept)
    assert free != sorted(free)
    assert packets_through(Jitter(0.01, seed=1), *PACKETS) != packets_through(Jitter(0.01, seed=2), *PACKETS)


def test_the_sender_does_not_wait_and_what_is_stuck_stays() -> None:
    stage = Jitter(0.01).begin()
    (parcel,) = stage(Parcel(b"a", 3 * MS, 3 * MS))
    assert parcel.left == 3 * MS
    (stuck,) = stage(Parcel(b"a", NEVER, NEVER))
    assert stuck.at == NEVER
