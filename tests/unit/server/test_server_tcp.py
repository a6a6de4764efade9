"""server.tcp, tls, stdio, outbox: sockets and pipes, whose connections count together, and a server's certificate."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from carriers import Carrier, TcpCarrier, connections_of
from certificates import Authority
from twisted.internet import tcp as twisted_tcp
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher

from smartserver.server import stdio, tcp
from smartserver.server.access import Admission, Anonymous, anonymous, invoking_user
from smartserver.server.connections import Connections
from smartserver.server.limits import MAX_REFUSED, Limits
from smartserver.server.outbox import SLICE, in_kernel, unacknowledged
from smartserver.server.shell import SessionProtocol
from smartserver.server.tls import BadKeyPair, KeyPair, make_key_pair
from smartserver.verbs.declare import Permission
from smartserver.wire.frames import PREFACE
from smartserver.wire.limits import PING_INTERVAL, STALL_TIMEOUT
from smartserver.wire.tls import fingerprint


@pytest.mark.parametrize(
    ("address", "may_force", "peer"),
    [
        (IPv4Address("TCP", "127.0.0.1", 7), True, "127.0.0.1:7"),
        (IPv6Address("TCP", "::1", 7), True, "[::1]:7"),
        (IPv4Address("TCP", "192.0.2.1", 7), False, "192.0.2.1:7"),
        (UNIXAddress(b"/x"), False, ""),
        (None, False, ""),
    ],
)
def test_who_connects_decides_what_it_may_and_the_log_tells_connections_apart(
    connections: Connections, address: IAddress | None, may_force: bool, peer: str
) -> None:
    made = tcp.TcpFactory(connections, tcp.anonymous_by_address(Anonymous.WRITE)).buildProtocol(address)
    assert made is not None
    access = made.session.admission.admit({})
    assert access.may(Permission.FORCE, "project") is may_force
    assert access.may(Permission.WRITE, "project")
    assert made.peer == peer


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

    came: list[Any] = [
        OSError(errno.EMFILE, "Too many open files"),
        (SimpleNamespace(close=lambda: None), ("192.0.2.7", 4000)),  # It takes the last descriptor.
        BlockingIOError(errno.EAGAIN, "nobody"),
        OSError(errno.ENOMEM, "no memory"),
    ]

    def accept() -> object:
        if isinstance(come := came.pop(0), OSError):
            raise come
        return come

    port: Any = twisted_tcp.Port(0, cast("Any", Factory()))
    port.numberAccepts = 10
    port.socket = SimpleNamespace(accept=accept)
    reserved: Any = twisted_tcp._FileDescriptorReservation(lambda: open(os.devnull))  # noqa: SIM115  # Closed below.
    reserved.reserve()
    monkeypatch.setattr(twisted_tcp, "_reservedFD", reserved)
    publisher: Any = globalLogPublisher
    publisher.addObserver(tcp.log_unaccepted)
    try:
        port.doRead()
        port.doRead()
    finally:
        publisher.removeObserver(tcp.log_unaccepted)
        reserved._fileDescriptor.close()
    assert caplog.messages == [
        "192.0.2.7:4000: closed at once: too many open files (`ulimit -n`)",
        "a connection could not be accepted: ENOMEM",
    ]


def served(pair: KeyPair) -> str:
    """The subject of the certificate of a new connection."""
    certificate = pair.serverConnectionForTLS(None).get_certificate()
    assert certificate is not None
    return certificate.to_cryptography().subject.rfc4514_string()


def test_a_pair_is_read_again_when_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path / "authority")
    files = tmp_path / "certificate.pem", tmp_path / "key.pem"
    for source, target in zip(authority.sign("old"), files, strict=True):
        shutil.copy(source, target)
    pair = KeyPair(*files)
    assert served(pair) == "CN=old"
    shutil.copy(authority.sign("new")[0], files[0])  # Half of it.
    assert served(pair) == "CN=old"
    assert f"{files[1]}: expected the RSA, EC or Ed25519 key of {files[0]}, without" in caplog.text
    assert "the certificate in use stays the one before" in caplog.text
    shutil.copy(authority.sign("new")[0], files[0])
    shutil.copy(tmp_path / "authority/new.key", files[1])
    assert served(pair) == "CN=new"
    assert f"{files[0]}: the new certificate is in use" in caplog.text
    files[0].unlink()
    assert served(pair) == "CN=new"
    assert f"{files[0]}: No such file or directory; the certificate in use" in caplog.text


@pytest.mark.parametrize("expired", [False, True])
def test_a_certificate_that_clients_refuse_for_its_dates_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, expired: bool
) -> None:
    certificate, key = Authority(tmp_path).sign("localhost", expired=expired)
    pair = KeyPair(certificate, key)
    served(pair)
    assert [f"{certificate}: the certificate expired on" in line for line in caplog.messages] == [True] * 2 * expired


def test_what_cannot_be_used(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.sign("here")
    other = authority.sign("other")[1]
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("nonsense")
    for pair, why in (
        ((tmp_path / "nothing", key), "nothing: No such file or directory"),
        ((nonsense, key), "nonsense: expected a certificate in PEM form"),
        (
            (certificate, nonsense),
            "nonsense: expected the RSA, EC or Ed25519 key of .*, without a passphrase",
        ),
        ((certificate, other), f"{other}: expected the RSA, EC or Ed25519 key of {certificate}, "),
    ):
        with pytest.raises(BadKeyPair, match=why):
            KeyPair(*pair)


def test_a_certificate_of_its_own_is_made_once(tmp_path: Path) -> None:
    folder = tmp_path / "state/smartserver"
    files = make_key_pair(folder)
    content = [each.read_bytes() for each in files]
    assert make_key_pair(folder) == files
    assert [each.read_bytes() for each in files] == content
    assert [each.stat().st_mode & 0o777 for each in (folder, *files)] == [0o700, 0o600, 0o600]
    assert sorted(os.listdir(folder)) == ["certificate.pem", "key.pem"]
    assert KeyPair(*files).fingerprint == fingerprint(ssl.PEM_cert_to_DER_cert(content[0].decode()))


def test_a_start_that_was_interrupted_between_the_files_goes_on(tmp_path: Path) -> None:
    certificate, key = make_key_pair(tmp_path)
    certificate.unlink()
    KeyPair(*make_key_pair(tmp_path))
    key.write_text("nonsense")
    certificate.unlink()
    with pytest.raises(BadKeyPair, match=f"{tmp_path}: no certificate can be made"):
        make_key_pair(tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadKeyPair, match=r"no certificate can be made: .*Not a directory"):
        make_key_pair(tmp_path / "file/state")


class Streams(Carrier):
    """Twisted's StandardIO."""

    protocol: SessionProtocol | None = None
    """Told of the loss, where it is to be."""

    @property
    def _writer(self) -> Streams:
        return self

    def connectionLost(self, reason: object) -> None:
        self.calls.append("lost")
        if self.protocol is not None:
            self.protocol.connectionLost()


def on_streams(connections: Connections) -> tuple[SessionProtocol, Streams]:
    made = stdio.StdioProtocol(connections, invoking_user("joe"), "joe on standard input")
    carrier = Streams()
    made.makeConnection(carrier)  # type: ignore[no-untyped-call]
    return made, carrier


def test_output_that_nobody_takes_leaves_nothing_behind(connections: Connections, clock: Clock) -> None:
    """Not its timer either, which would hold it for ever."""
    made, carrier = on_streams(connections)
    carrier.stuck = True
    carrier.protocol = made
    made.write(bytes(4 * SLICE))
    clock.pump([PING_INTERVAL] * int(STALL_TIMEOUT / PING_INTERVAL - 1))
    carrier.take(1)
    clock.pump([PING_INTERVAL] * int(STALL_TIMEOUT / PING_INTERVAL))
    assert carrier.calls == []
    clock.advance(PING_INTERVAL)
    assert carrier.calls == ["lost"]
    assert clock.getDelayedCalls() == []
    assert connections.open == set()


@dataclass
class Writer:
    """A Twisted descriptor."""

    descriptor: int
    dataBuffer: bytes = b""
    offset: int = 0
    _tempDataLen: int = 0

    def fileno(self) -> int:
        return self.descriptor


@pytest.fixture(params=["pipe", "tcp"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[int, Callable[[int], object]]]:
    """An end to write to, and a function that reads so many bytes of it."""
    if request.param == "pipe":
        out, into = os.pipe()
        yield into, lambda size: os.read(out, size)
        os.close(out)
        os.close(into)
        return
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with socket.create_connection(listening.getsockname()) as writer, listening.accept()[0] as reader:
            yield writer.fileno(), lambda size: reader.recv(size, socket.MSG_WAITALL)


def test_what_a_slow_reader_takes_is_seen(ends: tuple[int, Callable[[int], object]]) -> None:
    """Also what is far less than has to be taken before more can be written."""
    descriptor, read = ends
    os.set_blocking(descriptor, False)
    try:
        while True:
            os.write(descriptor, bytes(1 << 16))
    except BlockingIOError:
        pass
    before = unacknowledged(Writer(descriptor))
    assert before > 1 << 14
    taken = 0
    while unacknowledged(Writer(descriptor)) >= before:
        read(1000)
        taken += 1000
        assert taken < before


def test_what_the_kernel_has_not_taken_counts(ends: tuple[int, Callable[[int], object]]) -> None:
    descriptor, _ = ends
    assert unacknowledged(Writer(descriptor)) == 0
    assert unacknowledged(Writer(descriptor, b"123456789", 4, 3)) == 8


def test_what_can_be_read_of_a_socket_is_not_meant() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"12345")
        assert in_kernel(ours.fileno()) == 0


def test_of_what_is_neither_nothing_is_known(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        assert in_kernel(file.fileno()) == 0
    assert in_kernel(-1) == 0
