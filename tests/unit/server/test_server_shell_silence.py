"""server.shell: how long a peer may ask nothing, send nothing of what it began, or take nothing."""

from __future__ import annotations

import random

import pytest
from builders import MAIN, History
from carriers import INSERT, PING, begin, connections_of, heard, wait
from dialogs import Served, message
from twisted.internet.task import Clock

from smartserver.server.limits import Limits
from smartserver.server.outbox import SLICE
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Cancel, Error, GoAway, Ping, Pong, Request
from smartserver.wire.limits import PIECE, PING_INTERVAL, STALL_TIMEOUT
from smartserver.wire.messages import encode


@pytest.mark.parametrize("asked", [False, True])
def test_who_stops_in_the_middle_of_a_frame_is_dropped(clock: Clock, asked: bool) -> None:
    """A client that never asked anything is dropped, and so is one that did and is given much longer for its next
    request."""
    made, carrier = begin(connections_of(clock, Limits(idle=40.0)))
    client = Connection(Role.CLIENT)
    if asked:
        made.dataReceived(client.send(PING))
        heard(carrier, client)
    frame = client.send(Request(2, PING.payload))
    made.dataReceived(frame[:-2])
    clock.pump([10.0] * 3)
    made.dataReceived(frame[-2:-1])  # Half of it is no stall while a byte comes.
    clock.pump([10.0] * 3)
    assert carrier.calls == []
    clock.advance(10.0)
    assert heard(carrier, client) == [GoAway(b"nothing of the rest of a request came for 40 s")]
    assert carrier.calls == ["resume", "lose write"]


@pytest.fixture
def served() -> Served:
    served = Served()
    line = served.history.line(3)
    served.push(line[:2], {MAIN: line[1]})
    return served


def test_a_client_that_computes_keeps_its_upload_by_signs_of_life(served: Served, clock: Clock) -> None:
    made, carrier = begin(connections_of(clock, served=served))
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(Request(1, INSERT, body=True)))
    for _ in range(10):
        wait(clock, STALL_TIMEOUT / 2)
        pings = heard(carrier, client)
        assert len(pings) == STALL_TIMEOUT / 2 / PING_INTERVAL
        for event in pings:
            assert isinstance(event, Ping)
            made.dataReceived(client.send(Pong(event.payload)))
    made.dataReceived(client.send(Cancel(1)))
    assert [type(event) for event in heard(carrier, client)] == [Error]
    assert carrier.calls == []


def test_a_client_whose_upload_waits_for_the_disk_may_be_silent(served: Served, clock: Clock) -> None:
    made, carrier = begin(connections_of(clock, served=served))
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(Request(1, INSERT, body=True)))
    made.session.backlog(100 << 20)
    wait(clock, 2 * STALL_TIMEOUT)
    assert carrier.calls == ["pause"]
    # It hears that the server is there, whose answers to its own PINGs have to wait too.
    assert heard(carrier, client) == [Ping()] * int(2 * STALL_TIMEOUT / PING_INTERVAL)
    made.session.backlog(-(100 << 20))
    wait(clock, STALL_TIMEOUT - PING_INTERVAL)
    assert carrier.calls == ["pause", "resume"]
    wait(clock, PING_INTERVAL)
    assert carrier.calls == ["pause", "resume", "resume", "lose write"]


@pytest.mark.parametrize("ended", [False, True])
def test_a_closing_connection_sends_what_was_asked_however_slowly_it_is_taken(clock: Clock, ended: bool) -> None:
    """Its peer ended after its request, or the server is stopping: its answer is cut no sooner for that."""
    served = Served(history=History())
    tip = served.history.commit({"noise": bytes(range(256)) * 16, "more": random.Random(1).randbytes(5 << 20)})
    served.push([tip], {MAIN: tip})
    made, carrier = begin(connections_of(clock, served=served))
    carrier.stuck = True
    made.dataReceived(Connection(Role.CLIENT).send(Request(1, encode(message((repository_pull, PullRequest()))))))
    assert PIECE < carrier.writes[-1] <= SLICE
    assert PIECE < sum(map(len, made.outbox._unsent)) <= SLICE  # Read ahead, and no more.
    if ended:
        made.readConnectionLost()
    while not made.session.idle:
        wait(clock, STALL_TIMEOUT - PING_INTERVAL)
        carrier.take()
    made.close()
    while made.outbox:
        wait(clock, STALL_TIMEOUT - PING_INTERVAL)
        assert "abort" not in carrier.calls
        carrier.take()
    assert len(carrier.written) > 5 << 20
    for _ in range(3):  # The last piece is in the carrier's hands, and nobody asks for more.
        wait(clock, STALL_TIMEOUT - PING_INTERVAL)
        assert "abort" not in carrier.calls
        carrier.take(1)
    wait(clock, STALL_TIMEOUT + PING_INTERVAL)
    assert carrier.calls[-1] == "abort"
