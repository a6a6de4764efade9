"""server.sessions: how many connections there may be, and how they end when the server stops."""

from __future__ import annotations

import pytest
from carriers import begin, heard, sessions_of
from twisted.internet.task import Clock

from smartserver.errors import ServerBusy
from smartserver.server.limits import MAX_REFUSED, Limits
from smartserver.server.sessions import PARTING, REPORT_EVERY, Sessions
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import GoAway, Request
from smartserver.wire.limits import MAX_FRAME


def test_those_of_one_address(clock: Clock) -> None:
    sessions = sessions_of(clock, Limits(of_address=2))
    first, _ = begin(sessions, address="192.0.2.1")
    begin(sessions, address="192.0.2.1")
    for _ in range(5):
        begin(sessions)
    assert sessions.admit("192.0.2.2:1", "192.0.2.2") is None
    assert sessions.admit("127.0.0.1:1", "") is None
    why = sessions.admit("192.0.2.1:9", "192.0.2.1")
    assert str(why).startswith("the server is busy: it takes no more than 2 connections from one address at a time")
    refused, _ = begin(sessions, address="192.0.2.1", refusal=why)
    refused.connectionLost()
    refused.connectionLost()
    assert sessions.admit("192.0.2.1:9", "192.0.2.1") is not None
    first.connectionLost()
    assert sessions.admit("192.0.2.1:9", "192.0.2.1") is None


def test_those_refused_are_few_and_take_no_places(clock: Clock) -> None:
    sessions = sessions_of(clock, Limits(connections=1))
    why = ServerBusy("connections", 1)
    refused = [begin(sessions, refusal=why)[0] for _ in range(MAX_REFUSED - 1)]
    assert sessions.admit("x", "") is None
    assert sessions.may_refuse
    refused.append(begin(sessions, refusal=why)[0])
    assert not sessions.may_refuse
    refused[0].connectionLost()
    assert sessions.may_refuse


def test_a_flood_of_connections_is_no_flood_of_lines(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    sessions = sessions_of(clock, Limits(connections=0))
    for _ in range(100):
        sessions.admit("192.0.2.1:5", "")
    clock.advance(REPORT_EVERY)
    sessions.admit("192.0.2.1:6", "")
    assert len(caplog.records) == 2
    assert caplog.records[1].message.endswith("try again later (and 99 others since the last such line)")


# -- stopping


def test_stopping_waits_for_every_connection(sessions: Sessions, clock: Clock) -> None:
    first, carrier = begin(sessions)
    second, _ = begin(sessions)
    stopped = sessions.stop(30.0)
    assert heard(carrier, Connection(Role.CLIENT)) == [GoAway(b"the server is stopping")]
    first.connectionLost()
    assert not stopped.called
    second.connectionLost()
    assert stopped.called
    clock.advance(30)


def test_stopping_waits_only_shortly_for_peers_that_are_owed_nothing(sessions: Sessions, clock: Clock) -> None:
    """They may hold a connection for a command to come."""
    made, _ = begin(sessions)
    stopped = sessions.stop(30.0)
    clock.advance(5)
    assert not stopped.called  # It is still on its way.
    made.writeConnectionLost()
    clock.advance(PARTING - 0.1)
    assert not stopped.called
    clock.advance(0.1)
    assert stopped.called
    clock.advance(30)
    made.connectionLost()


def test_stopping_does_not_wait_for_ever(sessions: Sessions, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    made, _ = begin(sessions)
    made.dataReceived(Connection(Role.CLIENT).send(Request(1, bytes(MAX_FRAME), more=True)))
    stopped = sessions.stop(30.0)
    clock.advance(29.9)
    assert not stopped.called
    clock.advance(0.1)
    assert stopped.called
    assert [each.message for each in caplog.records] == ["stopping: open requests are cut off (connections: 1)"]


def test_stopping_can_be_hurried(sessions: Sessions, clock: Clock) -> None:
    made, _ = begin(sessions)
    sessions.cut()  # Nobody said stop.
    made.dataReceived(Connection(Role.CLIENT).send(Request(1, bytes(MAX_FRAME), more=True)))
    assert sessions.busy == 1
    stopped = sessions.stop(30.0)
    assert not stopped.called
    sessions.cut()
    assert stopped.called
    sessions.cut()


def test_stopping_without_connections(sessions: Sessions, clock: Clock) -> None:
    assert sessions.stop(30.0).called
    assert clock.getDelayedCalls() == []
    sessions.changed()
