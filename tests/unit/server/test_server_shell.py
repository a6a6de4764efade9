"""server.shell: what carries a session's bytes, with a carrier and a clock that are none."""

from __future__ import annotations

from carriers import begin

from smartserver.server.connections import Connections
from smartserver.server.outbox import SLICE


def test_what_waits_is_sent_before_the_connection_closes(connections: Connections) -> None:
    made, carrier = begin(connections)
    carrier.stuck = True
    made.write(b"a" * (2 * SLICE))
    made.dataReceived(b"GET / HTTP/1.1\r\n")
    assert carrier.calls == ["resume"]
    assert made.timeouts.sent_all is None
    carrier.take()
    assert carrier.calls == ["resume", "lose write"]
    assert len(carrier.written) == 2 * SLICE
    assert made.timeouts.sent_all is None
    made.writeConnectionLost()
    assert made.timeouts.sent_all is not None


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
