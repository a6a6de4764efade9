"""No bytes make a connection raise anything but RemoteProtocolError, and that for ever.

The cost of receiving: memory for one frame and one piece, and work that grows only with the bytes."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smartserver.wire.connection import Connection, Role
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.events import Body, Cancel, End, Event, PeerClosed, Ping, Progress, Reply, Request
from smartserver.wire.frames import HEADER, FrameType, ReceiveBuffer
from smartserver.wire.limits import MAX_FRAME, RECEIVE_CHUNK

garbage = st.binary(max_size=200)
headers = st.builds(
    HEADER.pack,
    st.one_of(st.integers(0, 20), st.integers(0, 0xFFFFFFFF)),
    st.one_of(st.sampled_from([int(kind) for kind in FrameType]), st.integers(0, 255)),
    st.one_of(st.integers(0, 3), st.integers(0, 0xFFFFFFFF)),
)
almost = st.lists(st.one_of(headers, garbage, st.just(b"")), max_size=8).map(b"".join)


def busy(role: Role) -> Connection:
    """A connection with a request under way, so that more than one thing may follow."""
    connection = Connection(role)
    if role is Role.CLIENT:
        connection.send(Request(1, b"pull"))
        connection.send(Request(2, b"push", body=True))
        connection.send(Ping())
    return connection


def read(role: Role, pieces: list[bytes]) -> list[Event]:
    """Everything up to an error, which then stays, or up to the end."""
    connection = busy(role)
    events: list[Event] = []
    broken: RemoteProtocolError | None = None
    try:
        for piece in pieces:
            connection.receive_data(piece)
            events += iter(connection.next_event, None)
        connection.receive_eof()
        events += iter(connection.next_event, None)
    except RemoteProtocolError as wrong:
        broken = wrong
    if broken is None:
        assert events.pop() == PeerClosed()
        assert connection.next_event() is None
    else:
        assert str(broken)
        with pytest.raises(type(broken)) as again:
            connection.next_event()
        assert str(again.value) == str(broken)
    return events


@given(
    st.sampled_from(Role), st.sampled_from([b"", b"hpss/1\n", b"hpss/2\n", b"hpss! 2\n"]), st.one_of(garbage, almost)
)
def test_garbage(role: Role, opening: bytes, rest: bytes) -> None:
    whole = read(role, [opening + rest])
    assert read(role, [(opening + rest)[at : at + 1] for at in range(len(opening + rest))]) == whole


def recorded(role: Role) -> bytes:
    """A legal dialog as the `role` end receives it from `busy` peers."""
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)
    up = [client.send(Request(1, b"pull")), client.send(Request(2, b"push", body=True)), client.send(Ping())]
    up += [client.send(Body(2, b"segment")), client.send(End(2, 1, 7)), client.send(Cancel(1))]
    server.receive_data(b"".join(up))
    assert len(list(iter(server.next_event, None))) == len(up)
    down = [server.send(Progress(2, b"half")), server.send(Reply(1, b"", body=True)), server.send(Body(1, b"segment"))]
    down += [server.send(Reply(2, b"done")), server.send(End(1, 1, 7))]
    return b"".join(up if role is Role.SERVER else down)


RECORDED = {role: recorded(role) for role in Role}


@given(st.sampled_from(Role), st.data())
def test_flipped_cut_and_doubled_bytes(role: Role, data: st.DataObject) -> None:
    wire = bytearray(RECORDED[role])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(wire)))
        how = data.draw(st.sampled_from(["flip", "drop", "insert", "double"]))
        if how == "flip" and at < len(wire):
            wire[at] ^= data.draw(st.integers(1, 255))
        elif how == "drop":
            del wire[at : at + data.draw(st.integers(1, 20))]
        elif how == "insert":
            wire[at:at] = data.draw(st.binary(max_size=20))
        else:
            wire[at:at] = wire[at : at + data.draw(st.integers(1, 40))]
    read(role, [bytes(wire)])


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
