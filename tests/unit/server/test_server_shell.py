"""server.shell, idle, connections: how many connections there may be, how long a peer may ask, send or take nothing,
and how connections end: a peer that is refused is read on for a while."""

from __future__ import annotations

import random

import pytest
from builders import MAIN, History
from carriers import INSERT, PING, Carrier, begin, connections_of, heard, wait
from dialogs import Served, message
from twisted.internet.task import Clock

from smartserver.errors import ServerBusy
from smartserver.server.connections import DRAIN_TIME, IDLE_ENOUGH, Connections
from smartserver.server.idle import PROBE_INTERVAL
from smartserver.server.limits import MAX_REFUSED, Limits
from smartserver.server.outbox import SLICE
from smartserver.server.shell import SessionProtocol
from smartserver.verbs.repository_insert_pack import InsertPackRequest, repository_insert_pack
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Body, Cancel, End, Error, GoAway, Ping, Pong, Reply, Request
from smartserver.wire.limits import (
    DRAIN_BYTES,
    DRAIN_SECONDS,
    KEEP_IDLE,
    MAX_FRAME,
    PIECE,
    PING_INTERVAL,
    STALL_TIMEOUT,
)
from smartserver.wire.messages import RequestFlag, decode_failure, encode

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


def test_those_of_one_address(clock: Clock) -> None:
    connections = connections_of(clock, Limits(of_address=2))
    first, _ = begin(connections, address="192.0.2.1")
    begin(connections, address="192.0.2.1")
    for _ in range(5):
        begin(connections)
    assert connections.admit("192.0.2.2:1", "192.0.2.2") is None
    assert connections.admit("127.0.0.1:1", "") is None
    why = connections.admit("192.0.2.1:9", "192.0.2.1")
    assert str(why).startswith("the server is busy: it takes no more than 2 connections from one address at a time")
    refused, _ = begin(connections, address="192.0.2.1", refusal=why)
    refused.connectionLost()
    refused.connectionLost()
    assert connections.admit("192.0.2.1:9", "192.0.2.1") is not None
    first.connectionLost()
    assert connections.admit("192.0.2.1:9", "192.0.2.1") is None


def test_those_refused_are_few_and_take_no_places(clock: Clock) -> None:
    connections = connections_of(clock, Limits(connections=1))
    why = ServerBusy("connections", 1)
    refused = [begin(connections, refusal=why)[0] for _ in range(MAX_REFUSED - 1)]
    assert connections.admit("x", "") is None
    assert connections.may_refuse
    refused.append(begin(connections, refusal=why)[0])
    assert not connections.may_refuse
    refused[0].connectionLost()
    assert connections.may_refuse


# -- room for one more


def asks(made: SessionProtocol, carrier: Carrier, client: Connection | None = None, number: int = 1) -> Connection:
    """A request, and its answer."""
    client = client or Connection(Role.CLIENT)
    made.dataReceived(client.send(Request(number, PING.payload)))
    assert [type(event) for event in heard(carrier, client)] == [Reply]
    return client


def test_who_is_silent_does_not_keep_others_out(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """The one that has been silent the longest goes first, and its place is free at once."""
    connections = connections_of(clock, Limits(connections=2))
    first, carrier = begin(connections)
    clock.advance(1)
    second, other = begin(connections)
    clock.advance(IDLE_ENOUGH - 1.1)
    assert connections.admit("x", "") is not None
    assert carrier.calls == []
    caplog.clear()
    clock.advance(0.1)
    assert connections.admit("x", "") is None
    why = "all 2 connections are in use, and this one was idle for 10 s"
    assert heard(carrier, Connection(Role.CLIENT)) == [GoAway(why.encode())]
    assert (carrier.calls, other.calls) == (["resume", "lose write", "lose"], [])
    assert [each.message for each in caplog.records] == [f"a peer: let go: {why}"]
    begin(connections)
    assert connections.admit("x", "") is not None  # The second had its ten seconds not yet.
    first.connectionLost()
    assert connections.admit("x", "") is not None  # Its place is taken.
    clock.advance(1)
    assert connections.admit("x", "") is None
    assert other.calls == ["resume", "lose write", "lose"]
    second.connectionLost()
    assert connections.admit("x", "") is None


def test_who_never_asked_goes_before_who_may_ask_again(clock: Clock) -> None:
    connections = connections_of(clock, Limits(connections=2))
    kept, carrier = begin(connections)
    client = asks(kept, carrier)
    clock.advance(1)
    _, silent = begin(connections)
    clock.advance(IDLE_ENOUGH)
    for calls in ([], ["resume", "lose write"]):
        assert connections.admit("x", "") is None
        assert carrier.calls == calls
        assert silent.calls == ["resume", "lose write", "lose"]
        begin(connections)
    assert heard(carrier, client) == [GoAway(b"all 2 connections are in use, and this one was idle for 11 s")]
    assert connections.admit("x", "") is not None


def test_who_does_something_is_never_let_go(clock: Clock) -> None:
    """A request is open, a part of one came just now, an answer is not taken yet, or one is on its way."""
    connections = connections_of(clock, Limits(connections=4))
    half, begun = begin(connections)
    half.dataReceived(Connection(Role.CLIENT).send(Request(1, bytes(MAX_FRAME), more=True)))
    slow, opening = begin(connections)
    reads, answer = begin(connections)
    asks(reads, answer)
    answer.stuck = True
    reads.write(bytes(1 << 20))
    again, kept = begin(connections)
    other = asks(again, kept)
    clock.advance(IDLE_ENOUGH - 1)
    slow.dataReceived(Connection(Role.CLIENT).send(PING)[:9])
    asks(again, kept, other, 2)
    clock.advance(IDLE_ENOUGH - 1)
    assert connections.admit("x", "") is not None
    assert begun.calls == opening.calls == answer.calls == kept.calls == []


def test_a_request_on_its_way_is_no_pause(clock: Clock) -> None:
    """Half a frame may be one, and who sends it is slow or stalled, for which there is another time."""
    connections = connections_of(clock, Limits(connections=2))
    (slow, opening), (again, kept) = begin(connections), begin(connections)
    client, other = Connection(Role.CLIENT), asks(again, kept)
    first, second = client.send(PING), other.send(Request(2, PING.payload))
    slow.dataReceived(first[:-1])
    again.dataReceived(second[:-1])
    clock.advance(3 * IDLE_ENOUGH)
    assert connections.admit("x", "") is not None
    slow.dataReceived(first[-1:])
    again.dataReceived(second[-1:])
    assert [type(event) for event in heard(opening, client) + heard(kept, other)] == [Reply, Reply]
    assert slow.timeouts.idle_since(clock.seconds()) == again.timeouts.idle_since(clock.seconds()) == clock.seconds()
    clock.advance(IDLE_ENOUGH)
    assert connections.admit("x", "") is None


def test_an_upload_that_was_refused_is_in_use_until_it_ends(clock: Clock) -> None:
    connections = connections_of(clock, Limits(connections=1))
    made, carrier = begin(connections)
    client = Connection(Role.CLIENT)
    insert = encode(message((repository_insert_pack, InsertPackRequest()), flags=RequestFlag.BODY, path="nowhere"))
    made.dataReceived(client.send(Request(1, insert, body=True)) + client.send(Body(1, b"x")))
    assert [type(event) for event in heard(carrier, client)] == [Error]
    clock.advance(2 * IDLE_ENOUGH)
    assert connections.admit("x", "") is not None
    assert made.timeouts.idle_since(clock.seconds()) is None
    made.dataReceived(client.send(Cancel(1)))
    assert made.timeouts.idle_since(clock.seconds()) == clock.seconds()
    clock.advance(IDLE_ENOUGH)
    assert connections.admit("x", "") is None


@pytest.mark.parametrize("all_sent", [False, True])
def test_who_was_let_go_has_an_end_whatever_he_takes(clock: Clock, all_sent: bool) -> None:
    connections = connections_of(clock, Limits(connections=1))
    made, carrier = begin(connections)
    carrier.stuck = True
    made.dataReceived(Connection(Role.CLIENT).send(PING))
    clock.advance(IDLE_ENOUGH)
    assert connections.admit("x", "") is None
    assert carrier.calls == ["resume", "lose write"]
    if all_sent:
        made.writeConnectionLost()
    for _ in range(4):
        clock.advance(DRAIN_TIME / 5)
        carrier.take(1)
        made.dataReceived(b"x")
    assert carrier.calls == ["resume", "lose write"]
    clock.advance(DRAIN_TIME / 5)
    assert carrier.calls == ["resume", "lose write", "lose" if all_sent else "abort"]


class Aborted(Carrier):
    """A transport whose peer closes nothing and takes a byte at a time; it says when it is gone."""

    made: SessionProtocol

    def abortConnection(self) -> None:
        super().abortConnection()
        self.made.connectionLost()


def test_there_are_never_more_than_twice_as_many(clock: Clock) -> None:
    """Though each asks, takes its answer byte by byte for as long as it can, and somebody new comes every second."""
    limit = 4
    connections = connections_of(clock, Limits(connections=limit))
    carriers: list[Aborted] = []
    most = 0
    for second in range(300):
        while connections.admit("x", "") is None:
            carrier = Aborted()
            carrier.stuck = True
            carrier.made, _ = begin(connections, carrier)
            carrier.made.dataReceived(Connection(Role.CLIENT).send(PING))
            carriers.append(carrier)
        most = max(most, len(connections.open))
        clock.advance(1)
        for each in carriers:
            if each.calls or second % 30 < 15:
                each.take(1)
    assert most == 2 * limit
    assert len(carriers) > 4 * limit
    assert DRAIN_TIME <= IDLE_ENOUGH


def test_who_was_told_to_go_for_silence_has_no_place(clock: Clock) -> None:
    """Though he never closes; and he is gone before as many as there may be could be told so again."""
    connections = connections_of(clock, Limits(connections=1, idle=3.0))
    _, carrier = begin(connections)
    clock.advance(2)
    assert connections.admit("x", "") is not None
    clock.advance(1)
    assert connections.admit("x", "") is None
    assert heard(carrier, Connection(Role.CLIENT)) == [GoAway(b"no request for 3 s")]
    begin(connections)
    assert connections.admit("x", "") is not None
    clock.advance(2)
    assert carrier.calls == ["resume", "lose write"]
    clock.advance(1)
    assert carrier.calls == ["resume", "lose write", "abort"]


def test_who_comes_from_one_address_too_often_lets_nobody_go(clock: Clock) -> None:
    connections = connections_of(clock, Limits(connections=1, of_address=1))
    _, carrier = begin(connections, address="192.0.2.1")
    clock.advance(IDLE_ENOUGH)
    assert "from one address" in str(connections.admit("192.0.2.1:9", "192.0.2.1"))
    assert carrier.calls == []
    assert connections.admit("192.0.2.2:9", "192.0.2.2") is None


# -- stopping


def test_stopping_does_not_wait_for_ever(
    connections: Connections, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    made, _ = begin(connections)
    made.dataReceived(Connection(Role.CLIENT).send(Request(1, bytes(MAX_FRAME), more=True)))
    stopped = connections.stop(30.0)
    clock.advance(29.9)
    assert not stopped.called
    clock.advance(0.1)
    assert stopped.called
    assert [each.message for each in caplog.records] == ["stopping: open requests are cut off (connections: 1)"]
