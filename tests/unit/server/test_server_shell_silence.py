"""server.shell: how long a peer may ask nothing, send nothing of what it began, or take nothing."""

from __future__ import annotations

import random

import pytest
from builders import MAIN, History
from carriers import INSERT, PING, ROOM, Carrier, Never, begin, connections_of, heard, wait
from dialogs import Served, message
from twisted.internet.task import Clock

from smartserver.server.connections import Connections
from smartserver.server.limits import Limits
from smartserver.server.outbox import SLICE
from smartserver.server.patience import PROBE_INTERVAL
from smartserver.server.shell import SessionProtocol
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Body, Cancel, Error, GoAway, Ping, Pong, Reply, Request
from smartserver.wire.limits import KEEP_IDLE, MAX_FRAME, PIECE, PING_INTERVAL, STALL_TIMEOUT
from smartserver.wire.messages import encode


def test_an_idle_connection_is_closed(connections: Connections, clock: Clock) -> None:
    made, carrier = begin(connections)
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(PING))
    assert [type(event) for event in heard(carrier, client)] == [Reply]
    clock.advance(KEEP_IDLE - 1)
    made.dataReceived(client.send(Request(2, PING.payload)))
    assert [type(event) for event in heard(carrier, client)] == [Reply]
    clock.advance(KEEP_IDLE / 4 + 1)
    assert heard(carrier, client) == []
    clock.pump([KEEP_IDLE / 4] * 3)
    assert heard(carrier, client) == [GoAway(b"no request for 900 s")]
    assert carrier.calls == ["resume", "lose write"]


@pytest.mark.parametrize("sent", [0, 3, 7])
def test_who_never_makes_a_request_holds_no_connection(clock: Clock, sent: int) -> None:
    """Nothing, a piece of the opening line, or all of it."""
    made, carrier = begin(connections_of(clock, Limits(idle=40.0)))
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(PING)[:sent])
    wait(clock, 39)
    assert heard(carrier, client) == []
    wait(clock, 40)
    assert heard(carrier, client) == [GoAway(b"no request for 40 s")]


@pytest.mark.parametrize("asked", [False, True])
def test_who_stops_in_the_middle_of_a_frame_is_dropped(clock: Clock, asked: bool) -> None:
    """Whether he never asked anything, or did and is given much longer for what he may ask next."""
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


@pytest.mark.parametrize("part", ["a frame", "a request", "a body"])
def test_an_upload_that_stopped_is_dropped(
    served: Served, clock: Clock, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection, the quarantine and all; and one line says so."""
    before = served.files()
    made, carrier = begin(connections_of(clock, served=served))
    client = Connection(Role.CLIENT)
    if part == "a request":
        made.dataReceived(client.send(Request(1, bytes(MAX_FRAME), more=True)))
    else:
        made.dataReceived(client.send(Request(1, INSERT, body=True)))
        piece = client.send(Body(1, served.history.segment(list(served.history.parents)[2])))
        made.dataReceived(piece)
        assert served.files() != before
        if part == "a frame":
            made.dataReceived(client.send(Body(1, b"1"))[:5])
    wait(clock, STALL_TIMEOUT - PING_INTERVAL)
    assert carrier.calls == []
    assert {type(event) for event in heard(carrier, client)} == {Ping}
    wait(clock, PING_INTERVAL)
    why = "nothing of the rest of a request came for 600 s"
    assert heard(carrier, client) == [GoAway(why.encode())]
    assert carrier.calls == ["resume", "lose write"]
    assert [each.message for each in caplog.records] == [f"a peer: dropped: {why}"]
    assert served.files() == before


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


def test_no_sign_of_life_is_asked_of_who_sends(served: Served, clock: Clock) -> None:
    made, carrier = begin(connections_of(clock, served=served))
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(Request(1, INSERT, body=True)))
    segment = served.history.segment(list(served.history.parents)[2])
    for at in range(40):
        clock.advance(PING_INTERVAL - 1)
        made.dataReceived(client.send(Body(1, segment[at : at + 1])))
    assert heard(carrier, client) == []
    assert carrier.calls == []


def test_a_client_that_waits_for_the_server_may_be_silent(connections: Connections, clock: Clock) -> None:
    """For as long as the server works."""
    made, carrier = begin(connections)
    connections.executor = Never()
    made.session.executor = Never()
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(PING))
    wait(clock, 20 * STALL_TIMEOUT)
    assert carrier.calls == []
    assert carrier.written == b""
    made.connectionLost()
    assert clock.getDelayedCalls() == []


def test_a_client_that_sends_no_more_is_asked_whether_it_is_still_there(connections: Connections, clock: Clock) -> None:
    """One that closed its connection looks the same until something is written to it, twice: the first write tells the
    system that nobody reads."""
    made, carrier = begin(connections)
    made.session.executor = Never()
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(PING))
    made.readConnectionLost()
    for _ in range(3):
        assert heard(carrier, client) == []
        clock.advance(PROBE_INTERVAL)
        assert [type(event) for event in heard(carrier, client)] == [Ping]
    made.connectionLost()
    assert clock.getDelayedCalls() == []


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


def big_clone(clock: Clock) -> tuple[SessionProtocol, Carrier, Connections]:
    """A connection on which a clone of five megabytes has begun and is not read."""
    served = Served(history=History())
    tip = served.history.commit({"noise": bytes(range(256)) * 16, "more": random.Random(1).randbytes(5 << 20)})
    served.push([tip], {MAIN: tip})
    connections = connections_of(clock, served=served)
    made, carrier = begin(connections)
    carrier.stuck = True
    made.dataReceived(Connection(Role.CLIENT).send(Request(1, encode(message((repository_pull, PullRequest()))))))
    assert PIECE < carrier.writes[-1] <= SLICE
    assert PIECE < made.outbox.size <= SLICE  # Read ahead, and no more.
    return made, carrier, connections


def test_a_clone_whose_reader_stopped_is_dropped(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    made, carrier, _ = big_clone(clock)
    wait(clock, STALL_TIMEOUT - PING_INTERVAL)
    assert carrier.calls == []
    wait(clock, PING_INTERVAL)
    assert carrier.calls == ["abort"]
    assert [each.message for each in caplog.records] == ["a peer: dropped: it took nothing of its answer for 600 s"]
    assert made.session.idle


def test_a_clone_may_take_as_long_as_it_takes(clock: Clock) -> None:
    """Its time has no limit while the peer reads, however slowly."""
    made, carrier, _ = big_clone(clock)
    while made.outbox:
        wait(clock, STALL_TIMEOUT - PING_INTERVAL)
        carrier.take()
    assert clock.seconds() > 4 * STALL_TIMEOUT
    assert carrier.calls == []
    assert len(carrier.written) > 5 << 20


def test_a_clone_may_be_read_a_byte_at_a_time(clock: Clock) -> None:
    """What is asked of its reader is any sign that it reads, and no least rate: not a piece in that time."""
    made, carrier, _ = big_clone(clock)
    for _ in range(20):
        wait(clock, STALL_TIMEOUT - PING_INTERVAL)
        carrier.take(1)
    assert carrier.calls == []
    assert len(carrier.writes) == 1
    assert made.outbox.full
    wait(clock, STALL_TIMEOUT)
    assert carrier.calls == []  # The last byte was seen to be gone a little after it was.
    wait(clock, PING_INTERVAL)
    assert carrier.calls == ["abort"]


def test_who_reads_slowly_is_no_less_heard_in_the_middle_of_an_upload(served: Served, clock: Clock) -> None:
    made, carrier = begin(connections_of(clock, served=served))
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(Request(1, INSERT, body=True)))
    carrier.stuck = True
    made.write(bytes(ROOM + 1))
    for _ in range(3):
        wait(clock, STALL_TIMEOUT - PING_INTERVAL)
        carrier.take(1)
    assert carrier.calls == []


@pytest.mark.parametrize("ended", [False, True])
def test_a_closing_connection_sends_what_was_asked_however_slowly_it_is_taken(clock: Clock, ended: bool) -> None:
    """Its peer ended after its request, or the server is stopping: its answer is cut no sooner for that."""
    made, carrier, _ = big_clone(clock)
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


def test_the_time_given_can_be_chosen(served: Served, clock: Clock) -> None:
    made, carrier = begin(connections_of(clock, Limits(idle=8.0), served))
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(Request(1, INSERT, body=True)))
    clock.pump([2.0] * 3)
    assert carrier.calls == []
    clock.advance(2.0)
    assert heard(carrier, client) == [GoAway(b"nothing of the rest of a request came for 8 s")]
