"""No bytes make a connection raise anything but RemoteProtocolError, and that for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smartserver.wire.connection import Connection, Role
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.events import Body, Cancel, End, Event, PeerClosed, Ping, Progress, Reply, Request
from smartserver.wire.frames import HEADER, FrameType

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
