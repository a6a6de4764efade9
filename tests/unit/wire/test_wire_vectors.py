"""wire.frames, wire.connection: every vector through the writer and the reader."""

from __future__ import annotations

import pytest
from wire_vectors import VECTORS, Pair, Vector

from smartserver.wire.connection import READERS, WRITERS
from smartserver.wire.events import Event
from smartserver.wire.frames import FrameType

each = pytest.mark.parametrize("vector", [pytest.param(vector, id=vector.name) for vector in VECTORS])


@each
def test_writer(vector: Vector) -> None:
    assert Pair(*vector.before).ends[vector.sender].send(vector.event) == vector.wire


@each
def test_reader_whole(vector: Vector) -> None:
    assert Pair(*vector.before).deliver(vector.sender, vector.wire) == list(vector.received)


@each
def test_reader_with_trailing_bytes(vector: Vector) -> None:
    """The start of another frame changes nothing and stays for later."""
    pair = Pair(*vector.before)
    ignored = bytes.fromhex("00000003 80 12345678") + b"new"
    for cut in range(len(ignored)):
        pair = Pair(*vector.before)
        assert pair.deliver(vector.sender, vector.wire + ignored[:cut]) == list(vector.received)
        assert pair.deliver(vector.sender, ignored[cut:]) == []


@pytest.mark.parametrize(
    "vector", [pytest.param(vector, id=vector.name) for vector in VECTORS if len(vector.wire) < 1000]
)
def test_reader_byte_by_byte(vector: Vector) -> None:
    pair = Pair(*vector.before)
    seen: list[Event] = []
    for at in range(len(vector.wire)):
        seen += pair.deliver(vector.sender, vector.wire[at : at + 1])
        assert (len(seen) == len(vector.received)) == (at == len(vector.wire) - 1)
    assert seen == list(vector.received)


@each
def test_reader_around_the_cut(vector: Vector) -> None:
    """Cut one byte before the end, and one after the start."""
    for cut in (1, len(vector.wire) - 1):
        pair = Pair(*vector.before)
        first = pair.deliver(vector.sender, vector.wire[:cut])
        assert first + pair.deliver(vector.sender, vector.wire[cut:]) == list(vector.received)
        assert len(first) < len(vector.received)


def test_table_is_whole() -> None:
    """Every kind of frame has a reader, every event that can be sent a writer, and each has a vector."""
    assert set(READERS) == set(FrameType)
    assert {type(vector.event) for vector in VECTORS} == set(WRITERS)
    types = {vector.wire[4 + 7 * vector.wire.startswith(b"hpss/1\n")] for vector in VECTORS}
    assert types == set(FrameType)
