"""server.outbox: a carrier gets a slice at a time, and none while it has enough."""

from __future__ import annotations

from smartserver.server.outbox import SLICE, Outbox


def test_what_is_long_is_handed_over_in_slices_while_the_carrier_takes_them() -> None:
    outbox, handed = Outbox(), []

    def write(data: bytes) -> None:
        handed.append(data)
        outbox.full = len(handed) == 2

    outbox.add(b"a" * (SLICE + 1))
    outbox.add(b"b" * SLICE)
    outbox.add(b"c")
    assert outbox.hand_over(write) == SLICE + 1
    assert outbox
    assert outbox.hand_over(write) == 0
    outbox.full = False
    assert outbox.hand_over(write) == SLICE + 1
    assert handed == [b"a" * SLICE, b"a", b"b" * SLICE, b"c"]
    assert not outbox


def test_it_is_forgotten() -> None:
    outbox = Outbox()
    outbox.add(b"a")
    outbox.clear()
    assert not outbox
