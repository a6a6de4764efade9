"""server.shell: who is refused is read on for a while, that it may hear why, and is let go."""

from __future__ import annotations

import pytest
from carriers import INSERT, PING, Carrier, Never, begin, connections_of, heard, wait
from twisted.internet.task import Clock

from smartserver.errors import ServerBusy
from smartserver.server.connections import Connections
from smartserver.server.limits import Limits
from smartserver.server.shell import SessionProtocol
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Body, Cancel, End, Error, GoAway, Request
from smartserver.wire.limits import DRAIN_BYTES, DRAIN_SECONDS, MAX_FRAME, PING_INTERVAL, STALL_TIMEOUT
from smartserver.wire.messages import decode_failure, named


def test_what_is_refused_is_read_on_until_the_peer_ends(connections: Connections, clock: Clock) -> None:
    made, carrier = begin(connections)
    made.dataReceived(b"GET / HTTP/1.1\r\n")
    assert carrier.calls == ["resume", "lose write"]
    assert carrier.producer is None
    made.dataReceived(b"Host: x\r\n\r\n")
    assert carrier.calls == ["resume", "lose write"]
    made.readConnectionLost()
    assert carrier.calls[2:] == ["lose"]
    made.connectionLost()
    assert clock.getDelayedCalls() == []


def test_the_patience_for_that_has_an_end_in_time(connections: Connections, clock: Clock) -> None:
    made, carrier = begin(connections)
    made.dataReceived(b"GET / HTTP/1.1\r\n")
    clock.advance(DRAIN_SECONDS - 1)
    made.writeConnectionLost()  # It took all that time to send what there was to say.
    clock.advance(DRAIN_SECONDS - 1)
    assert carrier.calls[2:] == []
    clock.pump([PING_INTERVAL] * 2)
    assert carrier.calls[2:] == ["lose"]
    made.connectionLost()
    assert clock.getDelayedCalls() == []


def test_the_patience_for_that_has_an_end_in_bytes(connections: Connections, clock: Clock) -> None:
    made, carrier = begin(connections)
    made.dataReceived(b"GET / HTTP/1.1\r\n")
    made.writeConnectionLost()
    for _ in range(64):
        made.dataReceived(bytes(DRAIN_BYTES // 64))
    assert carrier.calls[2:] == []
    made.dataReceived(b"x")
    assert carrier.calls[2:] == ["lose"]


@pytest.mark.parametrize("end", ["time", "bytes", "time, the peer having ended"])
def test_a_peer_that_takes_nothing_does_not_keep_its_connection(
    connections: Connections, clock: Clock, end: str
) -> None:
    """`loseConnection` would wait for it to read the answer, for ever."""
    made, carrier = begin(connections)
    carrier.stuck = True
    if end == "time, the peer having ended":
        made.dataReceived(Connection(Role.CLIENT).send(PING))
        made.readConnectionLost()
        assert carrier.calls == ["lose"]
    else:
        made.dataReceived(b"hpss/2\n")
        assert carrier.calls == ["resume", "lose write"]
    before = list(carrier.calls)
    if end == "bytes":
        made.dataReceived(bytes(DRAIN_BYTES))
        assert carrier.calls == before
        made.dataReceived(b"x")
    else:
        wait(clock, STALL_TIMEOUT - PING_INTERVAL)
        assert carrier.calls == before
        clock.advance(PING_INTERVAL)
    assert carrier.calls == [*before, "abort"]
    made.connectionLost()
    assert clock.getDelayedCalls() == []


def test_what_the_kernel_still_sends_keeps_a_connection_whose_end_was_said(
    connections: Connections, clock: Clock
) -> None:
    made, carrier = begin(connections)
    carrier.stuck = True
    made.write(bytes(1000))
    made.dataReceived(b"GET / HTTP/1.1\r\n")
    made.writeConnectionLost()
    for _ in range(5):
        wait(clock, DRAIN_SECONDS - PING_INTERVAL)
        carrier.take(1)
    assert carrier.calls == ["resume", "lose write"]
    wait(clock, DRAIN_SECONDS + PING_INTERVAL)
    assert carrier.calls == ["resume", "lose write", "lose"]


def refused_upload(connections: Connections) -> tuple[SessionProtocol, Carrier, Connection]:
    """A connection on which an upload was refused that its client goes on with."""
    made, carrier = begin(connections)
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(Request(1, INSERT, body=True)) + client.send(Body(1, b"x")))
    (error,) = heard(carrier, client)
    assert isinstance(error, Error)
    assert decode_failure(error.payload).fault.code == "no-such-repository"
    return made, carrier, client


def test_a_refused_upload_is_read_on_for_so_many_bytes(connections: Connections) -> None:
    made, carrier, client = refused_upload(connections)
    piece = bytes(MAX_FRAME)
    for _ in range(DRAIN_BYTES // MAX_FRAME):
        made.dataReceived(client.send(Body(1, piece)))
    assert carrier.calls == []
    made.dataReceived(client.send(Body(1, b"x")))
    (goaway,) = heard(carrier, client)
    assert goaway == GoAway(b"the upload was refused: more than 67108864 bytes came after that")
    assert carrier.calls == ["resume", "lose write"]
    made.writeConnectionLost()
    for _ in range(DRAIN_BYTES // MAX_FRAME):
        made.dataReceived(piece)
    assert carrier.calls[2:] == []
    made.dataReceived(b"x")
    assert carrier.calls[2:] == ["lose"]


def test_a_refused_upload_is_read_on_for_so_long(connections: Connections, clock: Clock) -> None:
    made, carrier, client = refused_upload(connections)
    for _ in range(4):
        clock.advance(PING_INTERVAL)
        made.dataReceived(client.send(Body(1, b"x")))
    (goaway,) = heard(carrier, client)
    assert goaway == GoAway(b"the upload was refused: it still came 60 s after that")
    assert carrier.calls == ["resume", "lose write"]


def test_what_is_open_besides_is_finished_first(connections: Connections, clock: Clock) -> None:
    made, carrier, client = refused_upload(connections)
    made.session.executor = Never()
    made.dataReceived(client.send(Request(2, PING.payload)))
    for _ in range(10):
        clock.advance(PING_INTERVAL)
        made.dataReceived(client.send(Body(1, b"x")))
    assert [type(event) for event in heard(carrier, client)] == [GoAway]
    assert carrier.calls == []


def test_uploads_refused_one_after_the_other_are_each_read_to_their_ends(
    connections: Connections, clock: Clock
) -> None:
    made, carrier, client = refused_upload(connections)
    for number in range(2, 10):
        for _ in range(DRAIN_BYTES // MAX_FRAME // 4):
            made.dataReceived(client.send(Body(number - 1, bytes(MAX_FRAME))))
        clock.advance(PING_INTERVAL)
        made.dataReceived(client.send(Cancel(number - 1)) + client.send(Request(number, INSERT, body=True)))
        made.dataReceived(client.send(Body(number, b"x")))
        assert [type(event) for event in heard(carrier, client)] == [Error]
    made.dataReceived(client.send(End(9, 0, 1)))
    wait(clock, DRAIN_SECONDS * 2)
    assert carrier.calls == []


def test_one_too_many_is_told_so(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    connections = connections_of(clock, Limits(connections=2))
    first, _ = begin(connections)
    begin(connections)
    why = connections.admit("192.0.2.1:5", "192.0.2.1")
    words = "the server is busy: it takes no more than 2 connections at a time; try again later"
    assert [each.message for each in caplog.records] == [f"192.0.2.1:5: refused: {words}"]

    made, carrier = begin(connections, refusal=why)
    client = Connection(Role.CLIENT)
    asked = client.send(PING)
    assert heard(carrier, client) == [GoAway(words.encode())]
    made.dataReceived(asked)
    (error,) = heard(carrier, client)
    assert isinstance(error, Error)
    fault = decode_failure(error.payload).fault
    assert (fault.code, named(fault)) == ("server-busy", {"what": "connections", "limit": 2})
    assert carrier.calls == ["resume", "lose write"]
    made.connectionLost()

    assert connections.admit("192.0.2.1:6", "192.0.2.1") is not None
    first.connectionLost()
    assert connections.admit("192.0.2.1:7", "192.0.2.1") is None


def test_one_too_many_is_refused_before_its_request_is_whole(clock: Clock) -> None:
    connections = connections_of(clock)
    for request in (Request(1, bytes(MAX_FRAME), more=True), Request(1, INSERT, body=True)):
        made, carrier = begin(connections, refusal=ServerBusy("connections", 2))
        client = Connection(Role.CLIENT)
        made.dataReceived(client.send(request))
        assert [type(event) for event in heard(carrier, client)] == [GoAway, Error]
        assert carrier.calls == ["resume", "lose write"]


@pytest.mark.parametrize("said", [b"", b"hpss/1\n\0\0", b"hpss/2\n"])
def test_one_too_many_that_asks_nothing_is_let_go(clock: Clock, said: bytes) -> None:
    made, carrier = begin(connections_of(clock), refusal=ServerBusy("connections", 2))
    made.dataReceived(said)
    wait(clock, DRAIN_SECONDS)
    assert carrier.calls[:2] == ["resume", "lose write"]
