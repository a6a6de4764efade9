"""gateway.routes, receive, ssh, places, updates, body: what a client asks, as bytes, and what waits for what.

gateway.http_channel: the time for which a client may keep the server waiting, on a clock of the test."""

from __future__ import annotations

import base64
import errno
import io
import logging
import os
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from dialogs import Lanes, SteppedExecutor
from memory_transport import MemoryTransport
from scripts import script
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransportWithDisconnection

from smartserver.gateway import http_request
from smartserver.gateway.body import HIGH, SMALL, BadBody, RequestBody
from smartserver.gateway.gateway import Gateway, Visitor
from smartserver.gateway.git_command import GitCommand, Service, git_command
from smartserver.gateway.git_programs import protocol_of, start_upload_pack
from smartserver.gateway.http_channel import HEAD, LOOK, GatewayChannel, GatewayFactory
from smartserver.gateway.http_request import MAX_FETCH
from smartserver.gateway.output import RunningProgram
from smartserver.gateway.pkt_line import FLUSH, BadRequest, band, error_line, line, read_line, read_lines
from smartserver.gateway.places import Places
from smartserver.gateway.receive import Command, read_request
from smartserver.gateway.routes import NoRoute, Route, client_behind, route, token_of
from smartserver.gateway.ssh import FAILED, LaterExecutor, serve
from smartserver.gateway.updates import Updates
from smartserver.server.access import Anonymous, anonymous, invoking_user
from smartserver.server.connections import IDLE_ENOUGH, Connections
from smartserver.server.executor import NOBODY, InlineExecutor, Lane
from smartserver.server.hook_rules import Hook, HookText
from smartserver.server.hooks import Hooks
from smartserver.server.limits import Limits
from smartserver.server.site import Site
from smartserver.vcs.base import VcsError
from smartserver.wire.limits import DRAIN_SECONDS

OLD, NEW = b"1" * 20, b"\x22" * 20
ABSENT = b"0" * 40


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        (b"GET", b"/a/b/info/refs?service=git-upload-pack", Route("a/b", Service.UPLOAD_PACK, True)),
        (b"GET", b"/info/refs?service=git-receive-pack", Route("", Service.RECEIVE_PACK, True)),
        (b"POST", b"/a%20b/git-receive-pack", Route("a b", Service.RECEIVE_PACK, False)),
        (b"POST", b"/%252e/git-upload-pack", Route("%2e", Service.UPLOAD_PACK, False)),
        (b"POST", b"/a/info/refs?service=git-upload-pack", 405),
        (b"HEAD", b"/a/info/refs?service=git-upload-pack", 405),
        (b"GET", b"/a/git-upload-pack", 405),
        (b"GET", b"/a/info/refs?service=git-upload-archive", 403),
        (b"GET", b"/a/objects/info/packs", 404),
        (b"GET", b"*", 400),
    ],
)
def test_routes(method: bytes, target: bytes, expected: Route | int) -> None:
    try:
        found: Route | int = route(method, target)
    except NoRoute as wrong:
        found = wrong.status
    assert found == expected


@pytest.mark.parametrize(("said", "token"), [("anna:secret", b"secret"), ("secret:", b"secret"), (":", None)])
def test_the_token_is_the_password_or_the_name(said: str, token: bytes | None) -> None:
    extras = token_of(b"Basic " + base64.b64encode(said.encode()))
    assert [bytes(each)[1:] for each in extras.values()] == ([] if token is None else [token])


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"Bearer hpss_x", "^expected `Authorization: Basic`, whose password is the token; `Bearer` is not supported$"),
        (b"hpss_x", "^expected `Authorization: Basic`, whose password is the token"),
        (b"Basic !", "NAME:TOKEN in base64"),
        (b"Basic /w==", "NAME:TOKEN in base64"),
    ],
)
def test_other_credentials(said: bytes, why: str) -> None:
    with pytest.raises(NoRoute, match=why):
        token_of(said)


@pytest.mark.parametrize(
    ("said", "address"),
    [(b"192.0.2.1", "192.0.2.1"), (b"evil, 2001:db8::1", "2001:db8::1"), (b"evil", ""), (b"", ""), (b"1.1.1.1,", "")],
)
def test_the_client_behind_a_proxy(said: bytes, address: str) -> None:
    assert client_behind(said) == address


@pytest.mark.parametrize(
    ("original", "expected"),
    [
        ("git-upload-pack '/a b'", GitCommand(Service.UPLOAD_PACK, "a b")),
        ("git-receive-pack 'project'", GitCommand(Service.RECEIVE_PACK, "project")),
        ("git upload-pack '/~/project'", GitCommand(Service.UPLOAD_PACK, "project")),
        ("git-upload-archive 'x'", None),
        ("git-upload-pack 'x' 'y'", None),
        ("smartserver serve --stdio x", None),
        ("git-upload-pack 'x", None),
        ("", None),
    ],
)
def test_commands_of_ssh(original: str, expected: GitCommand | None) -> None:
    assert git_command(original) == expected


def test_protocol_versions() -> None:
    assert [protocol_of(each) for each in ("version=2", "x:version=1", "version=3", "version=2;x", "")] == [
        "version=2", "version=1", "", "", "",
    ]  # fmt: skip


@pytest.mark.parametrize("content", [b"", b"00", b"0003", b"xxxx", b"+005a", b"0008abc", b"fff5", b" 004"])
def test_lines_that_are_none(content: bytes) -> None:
    with pytest.raises(BadRequest):
        read_line(io.BytesIO(content).read)


def test_lines() -> None:
    assert read_lines(io.BytesIO(line(b"a") + line(b"") + FLUSH + b"rest").read, 10) == [b"a", b""]
    for lines in (line(b"a" * 7), line(b"") * 3):
        with pytest.raises(BadRequest):
            read_lines(io.BytesIO(lines + FLUSH).read, 10)
    packets = list(band(1, b"x" * 100_000))
    assert [len(each) for each in packets] == [65520, 100_000 - 65515 + 5]


def test_a_push_is_read_up_to_its_pack() -> None:
    first = OLD.hex().encode() + b" " + NEW.hex().encode() + b" refs/heads/a"
    content = line(b"shallow " + b"3" * 40)
    content += line(first + b"\0 report-status push-options atomic") + line(ABSENT + b" " + ABSENT + b" refs/heads/b\n")
    content += FLUSH + line(b"ci.skip") + FLUSH + b"PACK"
    stream = io.BytesIO(content)
    request = read_request(stream.read)
    assert request.commands == [Command(OLD, NEW, b"refs/heads/a"), Command(b"", b"", b"refs/heads/b")]
    assert b"atomic" in request.capabilities
    assert request.options == [b"ci.skip"]
    assert request.has_pack
    assert request.is_shallow
    assert stream.read() == b"PACK"


@pytest.mark.parametrize(
    "texts",
    [
        [b"nonsense"],
        [b"x" * 40 + b" " + ABSENT + b" refs/heads/a"],
        [ABSENT + b" " + ABSENT],
        [b"0" * 20 + b" 00 refs/heads/a"],
        [ABSENT + b" " + NEW.hex().encode() + b" refs/heads/a"] * 2,
    ],
)
def test_commands_that_are_none(texts: list[bytes]) -> None:
    with pytest.raises(BadRequest):
        read_request(io.BytesIO(b"".join(map(line, texts)) + FLUSH).read)


def test_words_of_git_make_no_line_of_their_own_in_the_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    def failed(*_: object) -> None:
        raise VcsError("one\ntwo")

    site: Any = None
    gateway = Gateway(site, str(tmp_path), LaterExecutor())
    monkeypatch.setattr(gateway, "may_fetch", failed)
    caplog.set_level(logging.INFO, "smartserver")
    visitor = Visitor(invoking_user("anna"), {}, "a test", "ssh")
    assert serve(gateway, visitor, GitCommand(Service.UPLOAD_PACK, "project"), "") == FAILED
    assert caplog.messages == [f"a test: {Service.UPLOAD_PACK}: one?two"]
    assert capfdbinary.readouterr().out == error_line("one?two")


def test_the_address_with_the_fewest_programs_comes_first() -> None:
    places, begun = Places(2), list[str]()
    for name in ("a1", "a2", "a3", "b1"):
        places.take(name[0], partial(begun.append, name))
    assert begun == ["a1", "a2"]
    places.leave("a")
    assert begun == ["a1", "a2", "b1"]
    places.leave("b")
    assert begun == ["a1", "a2", "b1", "a3"]
    places.leave("a")
    places.leave("a")
    places.take("c", partial(begun.append, "c1"))
    assert begun[-1] == "c1"


def test_a_lost_request_waits_for_no_update() -> None:
    executor, done = SteppedExecutor(), list[str]()

    def ended(name: str) -> Any:
        return lambda _: done.append(name)

    gateway: Any = SimpleNamespace(executor=executor, bring=lambda path: SimpleNamespace(close=lambda: None))
    updates, lost = Updates(gateway), ended("lost")
    for each in (ended("first"), lost, ended("second")):
        updates.bring("project", NOBODY, each)
    updates.forget("project", lost)
    updates.forget("other", lost)
    executor.run_all()
    assert done == ["first", "second"]
    assert not updates._waiting


def body_in(folder: Path) -> RequestBody:
    return RequestBody(str(folder), SteppedExecutor(), NOBODY, lambda more: None, gzip=False, most=1000)


def test_a_client_that_goes_while_its_body_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The descriptor would be that of another file by the next write."""
    body = body_in(tmp_path)
    body.add(b"one")
    body.add(b"two")
    original = RequestBody._append

    def append(self: RequestBody, content: bytes) -> None:
        if content == b"two":
            self.abandon()
        original(self, content)

    monkeypatch.setattr(RequestBody, "_append", append)
    with open(body.open(), "rb") as file:
        assert file.read() == b"onetwo"
    body.abandon()


def test_a_client_that_went_before(tmp_path: Path) -> None:
    body = body_in(tmp_path)
    body.add(b"one")
    body.abandon()
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(BadBody):
        body.open()
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_disk_that_is_full_stops_no_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer follows the rest of the body, which must come for that."""
    reads: list[bool] = []
    executor = SteppedExecutor()
    body = RequestBody(str(tmp_path), executor, NOBODY, reads.append, gzip=False, most=HIGH * 9)

    def append(self: RequestBody, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(RequestBody, "_append", append)
    for size in (SMALL + 1, HIGH, HIGH):
        body.add(bytes(size))
    executor.run_all()
    assert reads == [False, True]
    body.add(b"more")
    with pytest.raises(OSError, match="full"):
        body.open()


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
