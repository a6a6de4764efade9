"""server.shell, server.tcp, server.stdio: what carries a session's bytes, with a carrier and a clock that are none."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import cast

import pytest
from dialogs import Served, message
from twisted.internet import stdio as twisted_stdio
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IAddress, IHalfCloseableProtocol, IPushProducer
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock

from smartserver.server import stdio, tcp
from smartserver.server.access import Access, Anonymous, invoking_user
from smartserver.server.executor import InlineExecutor
from smartserver.server.shell import PARTING, SessionProtocol, Sessions
from smartserver.server.shell import Clock as ShellClock
from smartserver.verbs.declare import Permission
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import GoAway, Reply, Request
from smartserver.wire.limits import DRAIN_BYTES, DRAIN_SECONDS, KEEP_IDLE, MAX_FRAME, NOTSENT_LOWAT
from smartserver.wire.messages import encode

PING = Request(1, encode(message((server_ping, PingRequest()), path="")))


class Carrier:
    """What Twisted's transports do, noted."""

    def __init__(self) -> None:
        self.written = b""
        self.calls: list[str] = []
        self.producer: object = None
        self.streaming = False

    def write(self, data: bytes) -> None:
        self.written += data

    def loseConnection(self) -> None:
        self.calls.append("lose")

    def loseWriteConnection(self) -> None:
        self.calls.append("lose write")

    def pauseProducing(self) -> None:
        self.calls.append("pause")

    def resumeProducing(self) -> None:
        self.calls.append("resume")

    def registerProducer(self, producer: object, streaming: bool) -> None:
        assert self.producer is None
        self.producer, self.streaming = producer, streaming

    def unregisterProducer(self) -> None:
        self.producer = None


class TcpCarrier(Carrier):
    """A TCP transport's extras."""

    def __init__(self) -> None:
        super().__init__()
        self.options: dict[int, int] = {}

    def setTcpNoDelay(self, enabled: bool) -> None:
        self.calls.append(f"no delay {enabled}")

    def setTcpKeepAlive(self, enabled: bool) -> None:
        self.calls.append(f"keep alive {enabled}")

    def getHandle(self) -> TcpCarrier:
        return self

    def setsockopt(self, level: int, option: int, value: int) -> None:
        assert level == socket.IPPROTO_TCP
        self.options[option] = value


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions(Served().site, InlineExecutor(), cast("ShellClock", clock))


def begin(sessions: Sessions, carrier: Carrier | None = None) -> tuple[SessionProtocol, Carrier]:
    made = SessionProtocol(sessions, invoking_user("tester"), "a peer")
    carrier = carrier or Carrier()
    made.makeConnection(carrier)  # type: ignore[no-untyped-call]
    return made, carrier


def heard(carrier: Carrier, client: Connection) -> list[object]:
    """What the server said."""
    client.receive_data(carrier.written)
    carrier.written = b""
    events: list[object] = []
    while (event := client.next_event()) is not None:
        events.append(event)
    return events


def test_it_is_what_twisted_takes() -> None:
    assert IHalfCloseableProtocol.implementedBy(SessionProtocol)
    assert IPushProducer.implementedBy(SessionProtocol)


def test_bytes_in_and_out(sessions: Sessions) -> None:
    made, carrier = begin(sessions)
    assert carrier.producer is made
    assert carrier.streaming
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(PING))
    assert [type(event) for event in heard(carrier, client)] == [Reply]
    assert carrier.calls == []
    made.readConnectionLost()
    assert carrier.calls == ["lose"]
    made.writeConnectionLost()
    assert sessions.open == {made}
    made.connectionLost()
    assert sessions.open == set()


def test_what_is_refused_is_read_on_until_the_peer_ends(sessions: Sessions, clock: Clock) -> None:
    made, carrier = begin(sessions)
    made.dataReceived(b"GET / HTTP/1.1\r\n")
    assert carrier.calls == ["resume", "lose write"]
    assert carrier.producer is None
    made.dataReceived(b"Host: x\r\n\r\n")
    assert carrier.calls == ["resume", "lose write"]
    made.readConnectionLost()
    assert carrier.calls[2:] == ["lose"]
    made.connectionLost()
    assert clock.getDelayedCalls() == []


def test_the_patience_for_that_has_an_end_in_time(sessions: Sessions, clock: Clock) -> None:
    made, carrier = begin(sessions)
    made.dataReceived(b"GET / HTTP/1.1\r\n")
    clock.advance(DRAIN_SECONDS - 1)
    assert carrier.calls[2:] == []
    clock.advance(1)
    assert carrier.calls[2:] == ["lose"]
    made.connectionLost()
    assert clock.getDelayedCalls() == []


def test_the_patience_for_that_has_an_end_in_bytes(sessions: Sessions, clock: Clock) -> None:
    made, carrier = begin(sessions)
    made.dataReceived(b"GET / HTTP/1.1\r\n")
    for _ in range(64):
        made.dataReceived(bytes(DRAIN_BYTES // 64))
    assert carrier.calls[2:] == []
    made.dataReceived(b"x")
    assert carrier.calls[2:] == ["lose"]


def test_flow_control_goes_both_ways(sessions: Sessions) -> None:
    made, carrier = begin(sessions)
    assert made.session is not None
    assert made.session.writable
    made.pauseProducing()
    assert not made.session.writable
    made.resumeProducing()
    assert made.session.writable
    made.stopProducing()
    made.pause_reading()
    made.resume_reading()
    assert carrier.calls == ["pause", "resume"]


def test_before_there_is_a_connection_nothing_happens(sessions: Sessions) -> None:
    made = SessionProtocol(sessions, invoking_user("tester"), "a peer")
    made.dataReceived(b"x")
    made.readConnectionLost()
    made.pauseProducing()
    made.resumeProducing()
    made._watch()
    made.connectionLost()
    assert made.session is None


def test_an_idle_connection_is_closed(sessions: Sessions, clock: Clock) -> None:
    made, carrier = begin(sessions)
    client = Connection(Role.CLIENT)
    clock.advance(KEEP_IDLE - 1)
    made.dataReceived(client.send(PING))
    assert [type(event) for event in heard(carrier, client)] == [Reply]
    clock.advance(KEEP_IDLE / 4 + 1)
    assert heard(carrier, client) == []
    clock.pump([KEEP_IDLE / 4] * 3)
    assert heard(carrier, client) == [GoAway(b"no request for 900 s")]
    assert carrier.calls == ["resume", "lose write"]


def test_a_busy_connection_is_kept(sessions: Sessions, clock: Clock) -> None:
    made, carrier = begin(sessions)
    made.dataReceived(Connection(Role.CLIENT).send(Request(1, bytes(256 << 10), more=True)))
    clock.pump([KEEP_IDLE / 4] * 20)
    assert carrier.calls == []
    made.connectionLost()
    assert clock.getDelayedCalls() == []


def test_a_lost_connection_is_forgotten_at_once(sessions: Sessions, clock: Clock) -> None:
    """A server sees many short connections: a timer that held each for minutes would fill memory."""
    made, _ = begin(sessions)
    assert len(clock.getDelayedCalls()) == 1
    made.connectionLost()
    assert clock.getDelayedCalls() == []
    made.connectionLost()


def test_the_program_learns_of_the_loss(sessions: Sessions) -> None:
    made, _ = begin(sessions)
    lost: list[bool] = []
    made.when_lost = lambda: lost.append(True)
    made.connectionLost()
    assert lost == [True]


# -- stopping


def test_stopping_waits_for_every_connection(sessions: Sessions, clock: Clock) -> None:
    first, carrier = begin(sessions)
    second, _ = begin(sessions)
    stopped = sessions.stop_within(30.0)()
    assert heard(carrier, Connection(Role.CLIENT)) == [GoAway(b"the server is stopping")]
    first.connectionLost()
    assert not stopped.called
    second.connectionLost()
    assert stopped.called
    clock.advance(30)


def test_stopping_waits_only_shortly_for_peers_that_are_owed_nothing(sessions: Sessions, clock: Clock) -> None:
    """They may hold a connection for a command to come."""
    begin(sessions)
    stopped = sessions.stop_within(30.0)()
    clock.advance(PARTING - 0.1)
    assert not stopped.called
    clock.advance(0.1)
    assert stopped.called
    clock.advance(30)


def test_stopping_does_not_wait_for_ever(sessions: Sessions, clock: Clock) -> None:
    made, _ = begin(sessions)
    made.dataReceived(Connection(Role.CLIENT).send(Request(1, bytes(MAX_FRAME), more=True)))
    stopped = sessions.stop_within(30.0)()
    clock.advance(29.9)
    assert not stopped.called
    clock.advance(0.1)
    assert stopped.called


def test_stopping_without_connections(sessions: Sessions, clock: Clock) -> None:
    assert sessions.stop_within(30.0)().called
    assert clock.getDelayedCalls() == []
    sessions.changed()


# -- TCP


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("::1%lo", True),
        ("localhost", False),
        ("", False),
    ],
)
def test_loopback(host: str, local: bool) -> None:
    assert tcp.is_loopback(host) is local


@pytest.mark.parametrize(
    ("address", "may_force"),
    [
        (IPv4Address("TCP", "127.0.0.1", 1), True),
        (IPv6Address("TCP", "::1", 1), True),
        (IPv4Address("TCP", "192.0.2.1", 1), False),
        (UNIXAddress(b"/x"), False),
        (None, False),
    ],
)
def test_who_connects_decides_what_it_may(sessions: Sessions, address: IAddress | None, may_force: bool) -> None:
    made = tcp.TcpFactory(sessions, Anonymous.WRITE).buildProtocol(address)
    access: Access = made._access
    assert (Permission.FORCE in access.permissions) is may_force
    assert Permission.WRITE in access.permissions


def test_the_options_of_a_socket(sessions: Sessions) -> None:
    made = tcp.TcpFactory(sessions, Anonymous.READ).buildProtocol(None)
    carrier = TcpCarrier()
    made.makeConnection(carrier)  # type: ignore[no-untyped-call]
    assert carrier.calls == ["no delay True", "keep alive True"]
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        assert carrier.options[socket.TCP_NOTSENT_LOWAT] == NOTSENT_LOWAT
    assert carrier.producer is made


def test_an_option_the_system_does_not_know_is_left_out(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "SOCKET_OPTIONS", {"TCP_NO_SUCH_THING": 1})
    made = tcp.TcpFactory(sessions, Anonymous.READ).buildProtocol(None)
    carrier = TcpCarrier()
    made.makeConnection(carrier)  # type: ignore[no-untyped-call]
    assert carrier.options == {}


class Port:
    def getHost(self) -> IPv4Address:
        return IPv4Address("TCP", "127.0.0.1", 1)

    def stopListening(self) -> None: ...


class Reactor:
    def __init__(self) -> None:
        self.asked: tuple[int, Factory, int, str] | None = None

    def listenTCP(self, port: int, factory: Factory, backlog: int, interface: str) -> Port:
        self.asked = (port, factory, backlog, interface)
        return Port()


def test_listening(sessions: Sessions) -> None:
    reactor = Reactor()
    assert tcp.listen(reactor, sessions, "::1", 4155, Anonymous.READ).getHost().port == 1
    assert reactor.asked is not None
    assert (reactor.asked[0], reactor.asked[3]) == (4155, "::1")
    assert isinstance(reactor.asked[1], tcp.TcpFactory)


# -- standard input and output


def test_standard_streams_act_as_the_invoking_user(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[object] = []
    monkeypatch.setattr(twisted_stdio, "StandardIO", cast("Callable[..., object]", joined.append))
    made = stdio.serve(sessions, "joe")
    assert joined == [made]
    assert made._access == invoking_user("joe")


class Streams(Carrier):
    """Twisted's StandardIO."""

    def connectionLost(self, reason: object) -> None:
        self.calls.append("lost")


def on_streams(sessions: Sessions) -> tuple[SessionProtocol, Streams]:
    made = stdio.StdioProtocol(sessions, invoking_user("joe"), "joe on standard input")
    carrier = Streams()
    made.makeConnection(carrier)  # type: ignore[no-untyped-call]
    return made, carrier


def test_output_that_nobody_reads_ends_the_connection(sessions: Sessions) -> None:
    made, carrier = on_streams(sessions)
    made.writeConnectionLost()
    assert carrier.calls == ["lost"]


def test_output_that_was_closed_here_leaves_the_input_to_its_end(sessions: Sessions) -> None:
    made, carrier = on_streams(sessions)
    made.dataReceived(b"hpss/2\n")
    made.writeConnectionLost()
    assert carrier.calls == ["resume", "lose write"]
    made.readConnectionLost()
    assert carrier.calls[2:] == ["lose", "lost"]


def test_input_that_ends_first_is_answered(sessions: Sessions) -> None:
    made, carrier = on_streams(sessions)
    made.dataReceived(Connection(Role.CLIENT).send(PING))
    made.readConnectionLost()
    assert carrier.calls == ["lose"]  # StandardIO says that it is lost once the answer is out.
