"""server.shell, server.idle: how long a peer may ask, send or take nothing; who is refused is read on for a while."""

from __future__ import annotations

import random

import pytest
from builders import MAIN, History
from carriers import INSERT, PING, Carrier, begin, connections_of, heard, wait
from dialogs import Served, message
from twisted.internet.task import Clock

from smartserver.errors import ServerBusy
from smartserver.server.connections import Connections
from smartserver.server.idle import PROBE_INTERVAL
from smartserver.server.limits import Limits
from smartserver.server.outbox import SLICE
from smartserver.server.shell import SessionProtocol
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Body, Cancel, End, Error, GoAway, Ping, Pong, Request
from smartserver.wire.limits import (
    DRAIN_BYTES,
    DRAIN_SECONDS,
    KEEP_IDLE,
    MAX_FRAME,
    PIECE,
    PING_INTERVAL,
    STALL_TIMEOUT,
)
from smartserver.wire.messages import decode_failure, encode

PULL = Request(1, encode(message((repository_pull, PullRequest()))))


@pytest.mark.parametrize("ended", [False, True])
def test_what_waits_is_sent_before_the_connection_closes(connections: Connections, ended: bool) -> None:
    """Whether its peer ended or not."""
    made, carrier = begin(connections)
    carrier.stuck = True
    made.write(b"a" * (3 * SLICE))
    made.dataReceived(b"GET / HTTP/1.1\r\n")
    if ended:
        made.readConnectionLost()
    carrier.take()
    assert carrier.calls == ["resume"]
    assert made.timeouts.sent_all is None
    carrier.take()
    assert carrier.calls == ["resume", "lose" if ended else "lose write"]
    assert len(carrier.written) == 3 * SLICE
    if not ended:
        assert made.timeouts.sent_all is None
        made.writeConnectionLost()
        assert made.timeouts.sent_all is not None


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


def pulling(clock: Clock, limits: Limits | None = None) -> tuple[SessionProtocol, Carrier]:
    """A connection whose peer asked for much, and takes nothing of it yet."""
    served = Served(history=History())
    tip = served.history.commit({"noise": bytes(range(256)) * 16, "more": random.Random(1).randbytes(5 << 20)})
    served.push([tip], {MAIN: tip})
    made, carrier = begin(connections_of(clock, limits, served))
    carrier.stuck = True
    made.dataReceived(Connection(Role.CLIENT).send(PULL))
    return made, carrier


@pytest.mark.parametrize("ended", [False, True])
def test_a_closing_connection_sends_what_was_asked_however_slowly_it_is_taken(clock: Clock, ended: bool) -> None:
    """Its peer ended after its request, or the server is stopping: its answer is cut no sooner for that."""
    made, carrier = pulling(clock)
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


@pytest.mark.parametrize(
    ("asked", "refusal", "keep"),
    [(True, None, KEEP_IDLE), (False, None, 80.0), (False, ServerBusy("connections", 2), DRAIN_SECONDS)],
)
def test_a_connection_is_kept_for_a_request_to_come(
    clock: Clock, asked: bool, refusal: ServerBusy | None, keep: float
) -> None:
    made, carrier = begin(connections_of(clock, Limits(idle=80.0)), refusal=refusal)
    client = Connection(Role.CLIENT)
    if asked:
        made.dataReceived(client.send(PING))
    clock.pump([1.0] * int(keep - 1))
    heard(carrier, client)
    assert carrier.calls == []
    clock.advance(1.0)
    assert heard(carrier, client) == [GoAway(b"no request for %d s" % keep)]
    assert carrier.calls == ["resume", "lose write"]


def test_signs_of_life_are_asked_for_more_often_of_one_that_sends_no_more(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pings: list[float] = []
    made, _ = pulling(clock, Limits(idle=2 * PING_INTERVAL))  # It is looked at twice as often.
    monkeypatch.setattr(made.session, "ping", lambda: pings.append(clock.seconds()))
    made.session.go_away("the server is stopping")
    clock.pump([PING_INTERVAL / 4] * 7)
    assert pings == [PING_INTERVAL]
    made.readConnectionLost()
    clock.pump([PROBE_INTERVAL] * 4)
    assert pings[1:] == [1.75 * PING_INTERVAL + number * PROBE_INTERVAL for number in range(5)]


def test_a_refused_upload_has_its_time_since_it_was_seen(connections: Connections, clock: Clock) -> None:
    made, carrier = begin(connections)
    wait(clock, 2 * DRAIN_SECONDS)
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(Request(1, INSERT, body=True)) + client.send(Body(1, b"x")))
    heard(carrier, client)
    said: list[object] = []
    while not said:
        clock.advance(1.0)
        made.dataReceived(client.send(Body(1, b"x")))
        said += heard(carrier, client)
    assert DRAIN_SECONDS <= clock.seconds() - 2 * DRAIN_SECONDS <= DRAIN_SECONDS + PING_INTERVAL
    assert said == [GoAway(b"the upload was refused: it still came %d s after that" % DRAIN_SECONDS)]


def test_one_that_is_closing_has_its_time_since_all_was_sent(connections: Connections, clock: Clock) -> None:
    made, carrier = begin(connections)
    wait(clock, STALL_TIMEOUT / 2)
    made.dataReceived(b"GET / HTTP/1.1\r\n")
    made.writeConnectionLost()
    wait(clock, DRAIN_SECONDS - PING_INTERVAL)
    assert carrier.calls == ["resume", "lose write"]
    wait(clock, PING_INTERVAL)
    assert carrier.calls == ["resume", "lose write", "lose"]
