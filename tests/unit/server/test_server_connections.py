"""server.connections: how many connections there may be, and how they end when the server stops."""

from __future__ import annotations

import pytest
from carriers import PING, Carrier, begin, connections_of, heard
from dialogs import message
from twisted.internet.task import Clock

from smartserver.errors import ServerBusy
from smartserver.server.connections import DRAIN_TIME, IDLE_ENOUGH, Connections
from smartserver.server.limits import MAX_REFUSED, Limits
from smartserver.server.shell import SessionProtocol
from smartserver.verbs.repository_insert_pack import InsertPackRequest, repository_insert_pack
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Body, Cancel, Error, GoAway, Reply, Request
from smartserver.wire.limits import MAX_FRAME
from smartserver.wire.messages import RequestFlag, encode


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
