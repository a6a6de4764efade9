"""The cost of receiving: memory for one frame and one piece, and work that grows only with the bytes."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator

import pytest

from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Body, End, Event, Reply, Request
from smartserver.wire.frames import ReceiveBuffer
from smartserver.wire.limits import MAX_FRAME, RECEIVE_CHUNK

GIB = 1 << 30
OBJECTS = 8 << 10
"""Bytes that the objects of the core and of this test may take, besides their content."""


def pieces(total: int, frame_payload: bytes, seed: int) -> Iterator[bytes]:
    """Yield `total` bytes of BODY frames in pieces of 1 byte to 64 KiB: long runs of large, short runs of tiny ones."""
    sizes = random.Random(seed)
    frame = len(frame_payload).to_bytes(4, "big") + b"\x02" + (1).to_bytes(4, "big") + frame_payload
    stream = frame * (2 + RECEIVE_CHUNK // len(frame))
    at = sent = 0
    while sent < total:
        largest = sizes.choice([1, 9, 1000, *[RECEIVE_CHUNK] * 97])
        for _ in range(min(100, (total - sent) // largest + 1)):
            size = largest if largest == RECEIVE_CHUNK else sizes.randint(1, largest)
            yield stream[at : at + size]
            at = (at + size) % len(frame)
            sent += size


@pytest.mark.parametrize(("total", "payload"), [(GIB, MAX_FRAME), (GIB >> 4, 40_000), (GIB >> 13, 5)])
def test_memory_while_a_gibibyte_is_fed(total: int, payload: int) -> None:
    server = Connection(Role.SERVER)
    server.receive_data(Connection(Role.CLIENT).send(Request(1, b"", body=True)))
    assert server.next_event() == Request(1, b"", body=True)
    feed = pieces(total, b"b" * payload, seed=20240817)
    piece = b""
    received = fed = worst = 0
    tracemalloc.start()
    try:
        first = next(feed)
        base = tracemalloc.get_traced_memory()[0]
        server.receive_data(first)
        fed += len(first)
        del first
        while event := server.next_event():
            assert isinstance(event, Body)
            received += len(event.chunk)
        for piece in feed:
            server.receive_data(piece)
            fed += len(piece)
            while event := server.next_event():
                assert isinstance(event, Body)
                received += len(event.chunk)
                event = None
            worst = max(worst, tracemalloc.get_traced_memory()[0] - base)
    finally:
        tracemalloc.stop()
    assert fed >= total
    assert fed - received * (payload + 9) // payload <= payload + 9
    assert worst <= MAX_FRAME + RECEIVE_CHUNK + OBJECTS


class CountingBuffer(ReceiveBuffer):
    """A buffer that counts its work: every byte that it reads passes `_take`."""

    def __init__(self) -> None:
        super().__init__()
        self.takes = self.taken = 0

    def _take(self, most: int) -> memoryview:
        taken = super()._take(most)
        self.takes += 1
        self.taken += len(taken)
        return taken


@pytest.mark.parametrize("piece", [1, 2, 7, 1000, RECEIVE_CHUNK, 1 << 30])
def test_work_is_linear(piece: int) -> None:
    """Every byte is taken once, in at most one step for each fed piece and three for each frame, for any cut."""
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)
    buffer = server._buffer = CountingBuffer()
    sent: list[Event] = [Request(1, b"ask" * 20_000, body=True), Body(1, b"x" * 150_000), Body(1, b"y" * 3)]
    sent += [End(1, 1, 150_003)]
    wire = b"".join(client.send(event) for event in sent)
    received: list[Event] = []
    fed = 0
    for at in range(0, len(wire), piece):
        server.receive_data(wire[at : at + piece])
        fed += 1
        received += iter(server.next_event, None)
    assert received == sent
    assert buffer.taken == len(wire)
    assert buffer.takes <= fed + len(b"hpss/1\n") + 3 * len(sent)
    assert not buffer._pieces


def test_nothing_is_held_between_frames() -> None:
    """An idle connection keeps no bytes of the frames it had, and no state of finished requests."""
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)

    def exchange(number: int) -> None:
        for event in (Request(number, b"", body=True), Body(number, b"x" * MAX_FRAME), End(number, 1, MAX_FRAME)):
            server.receive_data(client.send(event))
            assert server.next_event() == event
        client.receive_data(server.send(Reply(number, b"y" * (MAX_FRAME - 1))))
        assert client.next_event() is not None

    exchange(1)
    tracemalloc.start()
    try:
        base = tracemalloc.get_traced_memory()[0]
        for number in range(2, 20):
            exchange(number)
        assert tracemalloc.get_traced_memory()[0] - base <= OBJECTS
    finally:
        tracemalloc.stop()
