"""server.tcp: sockets and their options, and whose connections are counted together."""

from __future__ import annotations

import errno
import os
import socket
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from carriers import TcpCarrier, connections_of
from twisted.internet import tcp as twisted_tcp
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher

from smartserver.server import tcp
from smartserver.server.access import Admission, Anonymous, anonymous
from smartserver.server.connections import Connections
from smartserver.server.limits import MAX_REFUSED, Limits
from smartserver.server.tls import KeyPair
from smartserver.verbs.declare import Permission
from smartserver.wire.frames import PREFACE


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
def test_who_connects_decides_what_it_may(connections: Connections, address: IAddress | None, may_force: bool) -> None:
    made = tcp.TcpFactory(connections, tcp.anonymous_by_address(Anonymous.WRITE)).buildProtocol(address)
    assert made is not None
    access = made.session.admission.admit({})
    assert access.may(Permission.FORCE, "project") is may_force
    assert access.may(Permission.WRITE, "project")


class SecuredCarrier(TcpCarrier):
    """One whose TLS passes on what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.secured: list[bytes] = []
        self.protocol = self

    def startTLS(self, key_pair: object) -> None:
        self.calls.append("start TLS")

    def dataReceived(self, data: bytes) -> None:
        self.secured.append(data)


@pytest.mark.parametrize(("first", "private"), [(b"\x16\x03\x01", True), (PREFACE, False)])
def test_the_first_byte_says_whether_others_can_read_along(
    connections: Connections, first: bytes, private: bool
) -> None:
    asked: list[tuple[str, bool]] = []

    def admission(host: str, private: bool) -> Admission:
        asked.append((host, private))
        return anonymous(Anonymous.READ, local=False)

    encryption = tcp.Encryption(cast("KeyPair", object()), required=False)
    address = cast("IAddress", IPv4Address("TCP", "192.0.2.1", 1))
    made = tcp.TcpFactory(connections, admission, encryption).buildProtocol(address)
    assert made is not None
    carrier = SecuredCarrier()
    made.makeConnection(carrier)  # type: ignore[no-untyped-call]
    made.dataReceived(first)
    assert asked == [("192.0.2.1", False), *([("192.0.2.1", True)] if private else [])]
    assert carrier.secured == ([first] if private else [])
    assert ("start TLS" in carrier.calls) is private


@pytest.mark.parametrize(
    ("host", "whose"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("127.0.0.1", ""),
        ("::1", ""),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::ffff:127.0.0.1", ""),
        ("", ""),
    ],
)
def test_whose_connections_are_counted_together(host: str, whose: str) -> None:
    assert tcp.counted(host) == whose


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        (IPv4Address("TCP", "192.0.2.1", 7), "192.0.2.1:7"),
        (IPv6Address("TCP", "2001:db8::1", 7), "[2001:db8::1]:7"),
        (None, ""),
    ],
)
def test_the_log_tells_connections_of_one_address_apart(
    connections: Connections, address: IAddress | None, peer: str
) -> None:
    made = tcp.TcpFactory(connections, tcp.anonymous_by_address(Anonymous.READ)).buildProtocol(address)
    assert made is not None
    assert made.peer == peer


def test_one_too_many_and_more_than_that(clock: Clock) -> None:
    factory = tcp.TcpFactory(connections_of(clock, Limits(connections=1)), tcp.anonymous_by_address(Anonymous.READ))
    here: IAddress = cast("IAddress", IPv4Address("TCP", "192.0.2.1", 7))
    for number in range(1 + MAX_REFUSED):
        made = factory.buildProtocol(here)
        assert made is not None
        assert (made.refusal is not None) is (number > 0)
        made.makeConnection(TcpCarrier())  # type: ignore[no-untyped-call]
    assert factory.buildProtocol(here) is None


class Port:
    def __init__(self) -> None:
        self.socket = socket.socket()

    def getHost(self) -> IPv4Address:
        return IPv4Address("TCP", "127.0.0.1", 1)

    def stopListening(self) -> None: ...


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("3\n", ""),
        ("1", "this system does not let servers have it: set net.ipv4.tcp_fastopen to 3 (it is 1)"),
        ("0", "this system does not let servers have it: set net.ipv4.tcp_fastopen to 2 (it is 0)"),
        ("x", "this system does not have TCP Fast Open"),
        (None, "this system does not have TCP Fast Open"),
    ],
)
def test_fast_open_and_who_does_not_let_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str | None, why: str
) -> None:
    file = tmp_path / "tcp_fastopen"
    if setting is not None:
        file.write_text(setting)
    monkeypatch.setattr(tcp, "FAST_OPEN_SETTING", str(file))
    port = Port()
    with port.socket:
        assert tcp.fast_open(port) == why
        if sys.platform == "linux":
            assert port.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN) > 0


def test_connections_that_cannot_be_accepted_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Twisted itself observes them."""

    class Listener:
        """Has no descriptor left, or one connection that takes the last, or no memory."""

        def __init__(self) -> None:
            self.coming: list[OSError | tuple[object, tuple[str, int]]] = [
                OSError(errno.EMFILE, "Too many open files"),
                (Closed(), ("192.0.2.7", 4000)),
                BlockingIOError(errno.EAGAIN, "nobody"),
            ]

        def accept(self) -> tuple[object, tuple[str, int]]:
            come = self.coming.pop(0)
            if isinstance(come, OSError):
                raise come
            return come

    class Closed:
        def close(self) -> None:
            pass

    port: Any = twisted_tcp.Port(0, cast("Any", Factory()))
    port.numberAccepts = 10
    port.socket = Listener()
    reserved: Any = twisted_tcp._FileDescriptorReservation(lambda: open(os.devnull))  # noqa: SIM115  # Closed below.
    reserved.reserve()
    monkeypatch.setattr(twisted_tcp, "_reservedFD", reserved)
    publisher: Any = globalLogPublisher
    publisher.addObserver(tcp.log_unaccepted)
    try:
        port.doRead()
        port.socket.coming = [OSError(errno.ENOMEM, "no memory")]
        port.doRead()
    finally:
        publisher.removeObserver(tcp.log_unaccepted)
        reserved._fileDescriptor.close()
    assert caplog.messages == [
        "192.0.2.7:4000: closed at once: too many open files (`ulimit -n`)",
        "a connection could not be accepted: ENOMEM",
    ]
