"""server.shell: what carries a session's bytes, with a carrier and a clock that are none."""

from __future__ import annotations

import pytest
from carriers import PING, ROOM, begin, heard
from twisted.internet.interfaces import IHalfCloseableProtocol, IPushProducer
from twisted.internet.task import Clock

from smartserver.server.connections import Connections
from smartserver.server.outbox import SLICE
from smartserver.server.shell import SessionProtocol
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Ping, Reply
from smartserver.wire.limits import UNREAD_BYTES


def test_it_is_what_twisted_takes() -> None:
    assert IHalfCloseableProtocol.implementedBy(SessionProtocol)
    assert IPushProducer.implementedBy(SessionProtocol)


def test_bytes_in_and_out(connections: Connections) -> None:
    made, carrier = begin(connections)
    assert carrier.producer is made
    assert carrier.streaming
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(PING))
    assert [type(event) for event in heard(carrier, client)] == [Reply]
    assert carrier.calls == []
    made.readConnectionLost()
    assert carrier.calls == ["lose"]
    made.writeConnectionLost()
    assert connections.open == {made}
    made.connectionLost()
    assert connections.open == set()


def test_reading_pauses_and_goes_on(connections: Connections) -> None:
    made, carrier = begin(connections)
    made.pause_reading()
    made.resume_reading()
    made.stopProducing()
    assert carrier.calls == ["pause", "resume"]


# -- sending


def test_what_is_long_goes_to_the_carrier_in_slices(connections: Connections) -> None:
    made, carrier = begin(connections)
    carrier.stuck = True
    made.write(b"a" * ROOM)
    assert made.session.writable
    made.write(b"b" * (3 * SLICE + 1))
    made.write(b"c")
    assert carrier.writes == [ROOM, SLICE]
    assert not made.session.writable
    for taken in ([SLICE], [SLICE], [1, 1]):
        before = len(carrier.writes)
        assert not made.session.writable
        carrier.take()
        assert carrier.writes[before:] == taken
    assert made.session.writable
    assert carrier.written == b"a" * ROOM + b"b" * (3 * SLICE + 1) + b"c"


def test_what_waits_is_sent_before_the_connection_closes(connections: Connections) -> None:
    made, carrier = begin(connections)
    carrier.stuck = True
    made.write(b"a" * (2 * SLICE))
    made.dataReceived(b"GET / HTTP/1.1\r\n")
    assert carrier.calls == ["resume"]
    assert made.patience.sent_all is None
    carrier.take()
    assert carrier.calls == ["resume", "lose write"]
    assert len(carrier.written) == 2 * SLICE
    assert made.patience.sent_all is None
    made.writeConnectionLost()
    assert made.patience.sent_all is not None


def test_a_peer_that_ended_gets_what_waits(connections: Connections) -> None:
    made, carrier = begin(connections)
    carrier.stuck = True
    made.write(b"a" * (3 * SLICE))
    made.dataReceived(b"GET / HTTP/1.1\r\n")
    made.readConnectionLost()
    carrier.take()
    assert carrier.calls == ["resume"]
    carrier.take()
    assert carrier.calls == ["resume", "lose"]
    assert len(carrier.written) == 3 * SLICE


def test_answers_nobody_takes_have_a_bound(connections: Connections, caplog: pytest.LogCaptureFixture) -> None:
    made, carrier = begin(connections)
    carrier.stuck = True
    client = Connection(Role.CLIENT)
    ping = client.send(Ping(bytes(64)))
    ping += client.send(Ping(bytes(64))) * 10_000
    while carrier.calls == []:
        made.dataReceived(ping)
        ping = ping[-73 * 10_000 :]
        assert made.outbox.size < UNREAD_BYTES + SLICE
    assert carrier.calls == ["abort"]
    assert [each.message for each in caplog.records] == [
        "a peer: dropped: it takes no answers: expected no more than 4194304 bytes of them unread"
    ]
    made.dataReceived(ping)  # Until Twisted says that it is gone.
    made.connectionLost()
    assert not made.outbox


# -- the end


def test_a_lost_connection_is_forgotten_at_once(connections: Connections, clock: Clock) -> None:
    """A server sees many short connections: a timer that held each for minutes would fill memory."""
    made, _ = begin(connections)
    assert len(clock.getDelayedCalls()) == 1
    made.connectionLost()
    assert clock.getDelayedCalls() == []
    made.connectionLost()


def test_the_program_learns_of_the_loss(connections: Connections) -> None:
    made, _ = begin(connections)
    lost: list[bool] = []
    made.when_lost = lambda: lost.append(True)
    made.connectionLost()
    assert lost == [True]
