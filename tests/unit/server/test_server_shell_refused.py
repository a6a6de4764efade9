"""server.shell: who is refused is read on for a while, that it may hear why, and is let go."""

from __future__ import annotations

import pytest
from carriers import INSERT, PING, begin, connections_of, heard, wait
from twisted.internet.task import Clock

from smartserver.errors import ServerBusy
from smartserver.server.connections import Connections
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Body, Cancel, End, Error, GoAway, Request
from smartserver.wire.limits import DRAIN_BYTES, DRAIN_SECONDS, MAX_FRAME, PING_INTERVAL, STALL_TIMEOUT
from smartserver.wire.messages import decode_failure


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


def test_uploads_refused_one_after_the_other_are_each_read_to_their_ends(
    connections: Connections, clock: Clock
) -> None:
    made, carrier = begin(connections)
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(Request(1, INSERT, body=True)) + client.send(Body(1, b"x")))
    (error,) = heard(carrier, client)
    assert isinstance(error, Error)
    assert decode_failure(error.payload).fault.code == "no-such-repository"
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


def test_one_too_many_is_refused_before_its_request_is_whole(clock: Clock) -> None:
    connections = connections_of(clock)
    for request in (Request(1, bytes(MAX_FRAME), more=True), Request(1, INSERT, body=True)):
        made, carrier = begin(connections, refusal=ServerBusy("connections", 2))
        client = Connection(Role.CLIENT)
        made.dataReceived(client.send(request))
        assert [type(event) for event in heard(carrier, client)] == [GoAway, Error]
        assert carrier.calls == ["resume", "lose write"]
