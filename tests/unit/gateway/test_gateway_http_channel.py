"""gateway.http_channel: the time for which a client may keep the server waiting, on a clock of the test."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from dialogs import Lanes
from memory_transport import MemoryTransport
from scripts import script
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransportWithDisconnection

from smartserver.gateway import http_request
from smartserver.gateway.gateway import Gateway
from smartserver.gateway.git_programs import start_upload_pack
from smartserver.gateway.http_channel import HEAD, LOOK, GatewayChannel, GatewayFactory
from smartserver.gateway.http_request import MAX_FETCH
from smartserver.gateway.output import RunningProgram
from smartserver.gateway.places import Places
from smartserver.server.access import Anonymous, anonymous
from smartserver.server.connections import IDLE_ENOUGH, Connections
from smartserver.server.executor import InlineExecutor, Lane
from smartserver.server.hook_rules import Hook, HookText
from smartserver.server.hooks import Hooks
from smartserver.server.limits import Limits
from smartserver.server.site import Site
from smartserver.wire.limits import DRAIN_SECONDS

IDLE = 40.0


class Carrier(StringTransportWithDisconnection):
    """A TCP connection without a network. `dataBuffer`: the bytes that the client does not read."""

    dataBuffer = b""
    offset = 0
    _tempDataLen = 0

    def __init__(self, peer: IPv4Address) -> None:
        super().__init__(peerAddress=peer)  # type: ignore[no-untyped-call]  # Twisted leaves it untyped.
        self._socket = socket.socket(socket.AF_INET)
        self.aborted = False

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Accept the option of a TCP connection."""

    setTcpKeepAlive = setTcpNoDelay

    def getHandle(self) -> socket.socket:
        return self._socket

    def fileno(self) -> int:
        return self._socket.fileno()

    def abortConnection(self) -> None:
        self.aborted = True
        self.loseConnection()  # type: ignore[no-untyped-call]  # As above.

    def close(self) -> None:
        self._socket.close()

    @property
    def sent(self) -> bytes:
        """The bytes that were sent to the client."""
        content: bytes = self.value()  # type: ignore[no-untyped-call]  # As above.
        return content


class Place:
    """A gateway with a clock, and connections to it."""

    def __init__(self, folder: Path, **limits: int) -> None:
        self.clock: Any = Clock()
        site = Site(MemoryTransport())
        self.connections = Connections(site, InlineExecutor(), cast("Any", self.clock), Limits(idle=IDLE, **limits))
        self.gateway = Gateway(site, str(folder), InlineExecutor())
        self.factory = GatewayFactory(
            self.gateway, self.connections, lambda private: anonymous(Anonymous.WRITE, local=False), self.clock, None
        )
        self._carriers: list[Carrier] = []

    def connect(self, host: str = "192.0.2.1") -> tuple[GatewayChannel, Carrier]:
        address = IPv4Address("TCP", host, 1234)
        channel = self.factory.buildProtocol(cast("Any", address))
        assert channel is not None
        carrier = Carrier(address)
        carrier.protocol = cast("Any", channel)
        channel.makeConnection(carrier)  # type: ignore[no-untyped-call]  # As above.
        self._carriers.append(carrier)
        return channel, carrier

    def wait(self, seconds: float) -> None:
        self.clock.pump([1.0] * int(seconds))

    def close(self) -> None:
        for each in self._carriers:
            each.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


def test_a_head_that_comes_byte_by_byte(place: Place) -> None:
    """The timeout is for the whole head, however often bytes arrive."""
    channel, carrier = place.connect()
    for byte in b"GET /project/info/refs?service=git-upload-pack HTTP/1.1\r\nHost: x\r\n":
        if carrier.connected:
            channel.dataReceived(bytes([byte]))
            place.wait(1)
    assert not carrier.connected
    assert place.clock.seconds() <= HEAD + 10
    assert not place.connections.open


def test_a_head_without_end(place: Place) -> None:
    channel, carrier = place.connect()
    channel.dataReceived(b"GET / HTTP/1.1\r\n")
    for number in range(1000):
        if carrier.connected:
            channel.dataReceived(b"X-%d: y\r\n" % number)
    assert not carrier.connected
    assert carrier.sent.startswith(b"HTTP/1.1 400 ")


PUSH = (
    b"POST /project/git-receive-pack HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
    b"Content-Type: application/x-git-receive-pack-request\r\n\r\n"
)


def test_a_body_in_gzip_has_a_bound(place: Place) -> None:
    """The decoded body could be a thousand times as long as the received one."""
    channel, carrier = place.connect()
    fields = b"Content-Encoding: gzip\r\nExpect: 100-continue\r\n\r\n"
    channel.dataReceived(PUSH.replace(b": 100\r\n", b": %d\r\n" % (MAX_FETCH + 1)).removesuffix(b"\r\n") + fields)
    assert carrier.sent.startswith(b"HTTP/1.1 413 ")


def test_a_push_with_hooks_has_a_lane_of_its_own(place: Place) -> None:
    """The hooks run in that lane, too."""
    place.gateway.executor = lanes = Lanes()
    for paths in ("other", "project"):
        hook = Hook(HookText(paths, ["/check"]))
        place.gateway.site.hooks = Hooks(lambda hook=hook: [hook])  # type: ignore[misc]
        channel, _ = place.connect()
        channel.dataReceived(PUSH + b"0" * 100)
    assert lanes.lanes == [Lane.BODY, Lane.HOOK]


FETCH = b"GET /project/info/refs?service=git-upload-pack HTTP/1.1\r\nHost: x\r\n\r\n"


def test_a_lost_client_takes_no_place(place: Place) -> None:
    places = place.factory.places = Places(0)
    channel, carrier = place.connect()
    channel.dataReceived(FETCH)
    assert len(places._waiting) == 1
    carrier.loseConnection()  # type: ignore[no-untyped-call]  # As above.
    assert not places._waiting


def test_a_client_that_waits_for_an_update_takes_no_place(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update may take minutes, and other repositories can be fetched meanwhile."""
    waiting: list[object] = []
    updates: Any = SimpleNamespace(
        bring=lambda path, client, done: waiting.append(done), forget=lambda path, done: waiting.remove(done)
    )
    place.factory.updates = updates
    places = place.factory.places = Places(1)
    monkeypatch.setattr(Gateway, "state", lambda *_: None)
    monkeypatch.setattr(Gateway, "lease", lambda *_: None)
    carriers = [place.connect() for _ in range(2)]
    for channel, _ in carriers:
        channel.dataReceived(FETCH)
    assert len(waiting) == 2
    assert places._free == 1
    for _, carrier in carriers:
        carrier.loseConnection()  # type: ignore[no-untyped-call]  # As above.
    assert not waiting
    assert places._free == 1


def test_a_program_is_killed_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that counts objects writes nothing, so it would not notice that its client has disconnected."""
    script(tmp_path / "git", "sleep 1000 &\necho $!\nwait")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    reads, writes = os.pipe()
    said = os.memfd_create("said")
    process = start_upload_pack(str(tmp_path), said, "", stdin=0, stdout=writes, stderr=said)
    os.close(writes)
    running = RunningProgram(process, reads, said)
    with open(reads, "rb") as output:
        output.readline()
        running.kill()
        running.wait()
        assert output.read() == b"", "it ends once nobody has the pipe"


def test_a_body_that_does_not_come(place: Place) -> None:
    channel, carrier = place.connect()
    channel.dataReceived(PUSH)
    place.wait(IDLE - 5)
    channel.dataReceived(b"0")
    place.wait(IDLE - 5)
    assert carrier.connected
    place.wait(20)
    assert carrier.aborted


def test_a_refused_body_that_comes_byte_by_byte(place: Place) -> None:
    """The body is read for no longer than the body of a refused request of hpss://."""
    channel, carrier = place.connect()
    channel.dataReceived(PUSH.replace(b"application/x-git-receive-pack-request", b"text/plain"))
    for _ in range(20):
        if carrier.connected:
            channel.dataReceived(b"0")
            place.wait(IDLE / 4)
    assert carrier.aborted
    assert place.clock.seconds() <= DRAIN_SECONDS + 2 * LOOK


def test_a_body_in_chunks_that_is_too_large(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """No length announces the size. The body is read no further than that of any refused request."""
    monkeypatch.setattr(http_request, "MAX_PUSH", 100_000)
    monkeypatch.setattr(http_request, "DRAIN_BYTES", 1_000_000)
    channel, carrier = place.connect()
    channel.dataReceived(PUSH.replace(b"Content-Length: 100\r\n", b"Transfer-Encoding: chunked\r\n") + b"ffffffff\r\n")
    sent = 0
    while carrier.connected and sent < 20_000_000:
        channel.dataReceived(b"0" * 50_000)
        sent += 50_000
        place.wait(0)
    assert carrier.aborted
    assert sent < 2_000_000


def test_an_answer_that_is_not_taken(place: Place) -> None:
    channel, carrier = place.connect()
    channel.dataReceived(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert carrier.sent.startswith(b"HTTP/1.1 404 ")
    carrier.dataBuffer = b"x" * 1000
    place.wait(30)
    carrier.dataBuffer = b"x" * 999
    place.wait(30)
    assert carrier.connected
    place.wait(20)
    assert carrier.aborted


def test_a_connection_is_kept_for_another_request(place: Place) -> None:
    channel, carrier = place.connect()
    for _ in range(3):
        channel.dataReceived(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        place.wait(HEAD - 2)
    assert carrier.connected
    assert carrier.sent.count(b"HTTP/1.1 404 ") == 3


def test_connections_of_one_address(tmp_path: Path) -> None:
    place = Place(tmp_path, connections=10, of_address=2)
    for _ in range(2):
        place.connect()
    channel, carrier = place.connect()
    channel.dataReceived(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert carrier.sent.startswith(b"HTTP/1.1 503 ")
    place.connect("192.0.2.2")
    assert sum(each.refusal is None for each in place.connections.open) == 3
    place.close()


def test_an_idle_connection_makes_room(tmp_path: Path) -> None:
    place = Place(tmp_path, connections=1)
    _, first = place.connect()
    place.wait(IDLE_ENOUGH + 1)
    channel, _ = place.connect("192.0.2.2")
    assert channel.refusal is None
    assert not first.connected
    place.close()


def test_a_server_that_stops(place: Place) -> None:
    """Idle connections close at once; a connection with a request gets its answer first."""
    _, idle = place.connect()
    channel, busy = place.connect()
    channel.dataReceived(PUSH)
    done = place.connections.stop(30)
    assert not idle.connected
    assert busy.connected
    assert not done.called
    channel.dataReceived(b"0" * 100)
    assert busy.sent.startswith(b"HTTP/1.1 200 ")
    assert not busy.connected
    assert done.called
