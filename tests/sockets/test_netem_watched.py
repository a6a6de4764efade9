"""netem.watched: a program that opens its sockets itself, in each of the ways of Python programs; observations of
connections until no trace of them is left; and what is left alone: connections that are not meant, and every socket
once it is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from on_threads import PATIENCE, serving

from netem import watched as module
from netem.budget import NothingCounted, explain, round_trips
from netem.callsites import CallSite
from netem.counter import Counts
from netem.patches import Patches
from netem.proxy import Proxy, ProxyError
from netem.proxy_connection import Ends
from netem.watched import AlreadyWatched, Watched, _is_loopback

pytestmark = pytest.mark.sockets

HERE = Path(__file__).resolve()
RTT = 0.02


def answer(connection: socket.socket) -> None:
    """Answer each line with `re: ` and the line."""
    with contextlib.suppress(ConnectionError), connection.makefile("rb") as lines:
        for line in lines:
            connection.sendall(b"re: " + line)


@contextlib.contextmanager
def answering(host: str = "127.0.0.1") -> Iterator[int]:
    """Serve on a port of `host`; its number."""
    with serving(answer, host) as server:
        yield server.address[1]


def read_line(sock: socket.socket) -> bytes:
    got = b""
    while not got.endswith(b"\n"):
        more = sock.recv(99)
        assert more
        got += more
    return got


def ask(sock: socket.socket, line: bytes) -> None:
    sock.sendall(line)
    assert read_line(sock) == b"re: " + line


@pytest.fixture
def port() -> Iterator[int]:
    with answering() as port:
        yield port


def by_socket_once(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        ask(sock, b"x\n")


def asked(counts: Counts) -> list[tuple[CallSite, bytes]]:
    """Return the innermost line and the bytes of each message from the program."""
    return [(message.sites[0], message.content) for message in counts.messages if message.up and message.size]


def line_of(text: str) -> int:
    """Return the line of this file that ends with this text."""
    return 1 + [line.endswith(text) for line in HERE.read_text().splitlines()].index(True)


def by_socket(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        for number in range(3):
            sock.sendall(b"line %d\n" % number)  # by_socket
            assert read_line(sock) == b"re: line %d\n" % number


def by_file(port: int) -> None:
    with socket.create_connection(("localhost", port)) as sock, sock.makefile("rwb") as stream:
        for number in range(3):
            stream.write(b"line %d\n" % number)
            stream.flush()  # by_file
            assert stream.readline() == b"re: line %d\n" % number


def by_streams(port: int) -> None:
    async def talk() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in range(3):
            writer.write(b"line %d\n" % number)  # by_streams
            assert await reader.readline() == b"re: line %d\n" % number
        writer.close()
        await writer.wait_closed()

    asyncio.run(talk())


def by_loop(port: int) -> None:
    async def talk() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as sock:
            sock.setblocking(False)
            await loop.sock_connect(sock, ("127.0.0.1", port))
            for number in range(3):
                await loop.sock_sendall(sock, b"line %d\n" % number)  # by_loop
                assert await loop.sock_recv(sock, 99) == b"re: line %d\n" % number

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("talk", "mark", "function"),
    [
        (by_socket, "# by_socket", "by_socket"),
        (by_file, "# by_file", "by_file"),
        (by_streams, "# by_streams", "talk"),
        (by_loop, "# by_loop", "talk"),
    ],
)
def test_each_message_is_counted_and_knows_its_line(
    port: int, talk: Callable[[int], None], mark: str, function: str
) -> None:
    with Watched(RTT) as network:
        begun = time.monotonic()
        talk(port)
        assert time.monotonic() - begun >= 4 * RTT
        counts = network.take()
    assert (counts.rounds, counts.handshake_rounds, counts.connections) == (4, 1, 1)
    site = CallSite(str(HERE), line_of(f"  {mark}"), function)
    assert asked(counts) == [(site, b"line %d\n" % number) for number in range(3)]
    assert "3 round trips were made one after the other from" in explain(counts)


TWISTED = """
import sys
from netem.budget import explain
from netem.watched import Watched

def talk(port):
    from twisted.internet import protocol, reactor  # loaded when the sockets are watched already
    from twisted.protocols.basic import LineReceiver

    class Asking(LineReceiver):
        delimiter = b"\\n"
        left = 3
        def connectionMade(self):
            self.ask()
        def ask(self):
            self.sendLine(b"line %d" % self.left)
        def lineReceived(self, line):
            assert line == b"re: line %d" % self.left
            self.left -= 1
            if self.left:
                self.ask()
            else:
                self.transport.loseConnection()
        def connectionLost(self, reason):
            reactor.stop()

    factory = protocol.ClientFactory()
    factory.protocol = Asking
    reactor.connectTCP("127.0.0.1", port, factory)
    reactor.run()

with Watched(0.02) as network:
    talk(int(sys.argv[1]))
    print(explain(network.take()))
"""


def test_twisted(port: int, tmp_path: Path) -> None:
    """Twisted needs a process of its own: a reactor runs once."""
    program = tmp_path / "asking.py"
    program.write_text(TWISTED)
    command = [sys.executable, str(program), str(port)]
    environment = os.environ | {"PYTHONPATH": str(HERE.parents[2])}
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=PATIENCE)
    assert run.stderr == ""
    lines = run.stdout.splitlines()
    assert lines[0].startswith("4 round trips (1 of them opening connections), 1 connection, 21 bytes up")
    assert [line.split(" < ")[:2] for line in lines if line.startswith("      from")] == [
        ["      from asking.py:16 in ask", "asking.py:14 in connectionMade"],
        ["      from asking.py:16 in ask", "asking.py:21 in lineReceived"],
        ["      from asking.py:16 in ask", "asking.py:21 in lineReceived"],
    ]


def test_what_a_transport_buffers_belongs_to_who_wrote_it(port: int) -> None:
    """The text is far larger than a socket takes at once, so the loop sends it while no line of the program runs."""
    size = 8_000_000

    async def talk() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2 * size)
        writer.write(b"x" * size + b"\n")  # large
        writer.write(b"small\n")
        assert len(await reader.readline()) == size + 5
        writer.write(b"last\n")  # last
        assert await reader.readline() == b"re: small\n"
        assert await reader.readline() == b"re: last\n"
        writer.close()
        await writer.wait_closed()

    with Watched(0) as network:
        asyncio.run(talk())
        lines = [site.line for site, _ in asked(network.take())]
    assert lines[0] == line_of("  # large")
    assert lines[-1] == line_of("  # last")


def say(sock: socket.socket) -> None:
    sock.sendall(b"line\n")  # by TLS
    assert sock.recv(99) == b"re: line\n"


def test_tls_is_counted_and_the_latest_sender_said(tmp_path: Path) -> None:
    """Not its words: they are encrypted."""
    authority = Authority(tmp_path / "authority")
    context_of_server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context_of_server.load_cert_chain(*authority.sign("127.0.0.1"))

    def answer(connection: socket.socket) -> None:
        with context_of_server.wrap_socket(connection, server_side=True) as sock:
            while said := sock.recv(99):
                sock.sendall(b"re: " + said)

    with serving(answer) as server, Watched(RTT) as network:
        context = ssl.create_default_context(cafile=str(authority.file))
        with (
            socket.create_connection(server.address) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as sock,
        ):
            say(sock)
            network.take()  # the handshake's last words have arrived
            for _ in range(2):
                say(sock)
            counts = network.take()
    assert [m.sites[0] for m in counts.messages if m.up and m.size] == [
        CallSite(str(HERE), line_of("  # by TLS"), "say")
    ] * 2


def test_only_the_named_servers_are_meant() -> None:
    with answering() as one, answering() as other, Watched(RTT, servers=[("localhost", other)]) as network:
        with pytest.raises(NothingCounted), round_trips(network, at_most=9):
            by_socket_once(one)
        by_socket_once(other)
        assert network.counts().connections == 1


@pytest.mark.parametrize(
    ("host", "family", "address"),
    [
        ("127.0.0.1", socket.AF_INET, "0.0.0.0"),
        ("127.0.0.1", socket.AF_INET6, "::ffff:127.0.0.1"),
        ("127.0.0.1", socket.AF_INET6, "::ffff:0.0.0.0"),
        ("::1", socket.AF_INET6, "::1"),
    ],
)
def test_other_names_of_this_machine(host: str, family: socket.AddressFamily, address: str) -> None:
    with answering(host) as port, Watched(RTT) as network:
        with socket.socket(family) as sock:
            sock.connect((address, port))
            ask(sock, b"x\n")
        assert network.take().connections == 1


def test_an_address_of_another_machine_is_none() -> None:
    assert not any(map(_is_loopback, ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "no address"]))


def test_what_is_no_tcp_connection_is_left_alone(tmp_path: Path) -> None:
    with Watched(RTT) as network:
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind(str(tmp_path / "socket"))
            server.listen()
            client.connect(str(tmp_path / "socket"))
            client.sendall(b"here")
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
        ):
            one.bind(("127.0.0.1", 0))
            other.connect(one.getsockname())
            other.send(b"there")
            assert one.recv(9) == b"there"
        with socket.socket() as sock, pytest.raises(TypeError):
            sock.connect(("127.0.0.1", "no port at all", "nor this"))
        assert not network.take().used


def test_what_goes_to_another_proxy_is_counted_there_alone(port: int) -> None:
    with Watched(RTT) as network, Proxy(RTT, ("127.0.0.1", port)) as proxy:
        by_socket_once(proxy.port)
        assert (network.take().connections, proxy.take().connections) == (0, 1)
        by_socket_once(port)
        assert (network.take().connections, proxy.take().connections) == (1, 0)


@pytest.mark.parametrize(
    ("listening", "dialed"),
    [
        ("127.0.0.1", "0.0.0.0"),
        ("0.0.0.0", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.2"),
        ("::1", "::"),
        ("::", "::1"),
    ],
)
def test_so_is_what_goes_to_one_by_another_name_of_this_machine(
    port: int, listening: str, dialed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = "::1" if ":" in listening else "127.0.0.2" if dialed == "127.0.0.2" else "127.0.0.1"
    with Watched(RTT) as network, Proxy(RTT, ("127.0.0.1", port), listen=(here, 0)) as proxy:
        monkeypatch.setattr(module, "DOORS", {(listening, proxy.port)})  # no test listens beyond loopback
        with socket.create_connection((dialed, proxy.port)) as sock:
            ask(sock, b"x\n")
        assert (network.take().connections, proxy.take().connections) == (0, 1)


def test_a_proxy_on_all_addresses_of_one_family_is_none_of_the_other(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DOORS", {("::", port), ("0.0.0.0", port + 1), ("127.0.0.2", port)})
    with Watched(RTT) as network:
        by_socket_once(port)
        assert network.take().connections == 1


def test_a_fork_is_left_alone(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with Watched(RTT) as network:
        with monkeypatch.context() as forked:
            forked.setattr(os, "getpid", lambda: 1)
            by_socket_once(port)
        assert not network.take().used


def test_one_at_a_time() -> None:
    with Watched(RTT), pytest.raises(AlreadyWatched), Watched(RTT):
        pass
    with Watched(RTT):
        pass


def test_a_beginning_that_is_interrupted_leaves_nothing_behind(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    replace, before, running = Patches._replace, dict(vars(socket.socket)), set(threading.enumerate())
    left = [True] * 5

    def interrupted(patches: Patches, *arguments: Any) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        replace(patches, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Patches, "_replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Watched(RTT).__enter__()
    assert dict(vars(socket.socket)) == before
    assert set(threading.enumerate()) <= running
    with Watched(RTT) as network:
        by_socket_once(port)
        assert network.take().connections == 1


LONG = 0.2
"""An RTT within which a busy machine surely makes the next call."""


def ask_all(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.sendall(b"x\n")
    for sock in sockets:
        assert read_line(sock) == b"re: x\n"


def in_a_loop(port: int) -> None:
    with contextlib.ExitStack() as opened:
        ask_all([opened.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(5)])


def in_a_loop_by_number(port: int) -> None:
    """Connect by `connect_ex`, with a timeout: the call blocks the program, but not the kernel."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(5)]
        for sock in sockets:
            sock.settimeout(PATIENCE)
            assert sock.connect_ex(("127.0.0.1", port)) == 0
        ask_all(sockets)


async def ask_all_streams(streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
    for _, writer in streams:
        writer.write(b"x\n")
    for reader, writer in streams:
        assert await reader.readline() == b"re: x\n"
        writer.close()


def in_a_loop_of_tasks(port: int) -> None:
    async def talk() -> None:
        await ask_all_streams([await asyncio.open_connection("127.0.0.1", port) for _ in range(5)])

    asyncio.run(talk())


def by_threads_at_once(port: int) -> None:
    ready = threading.Barrier(6)

    def one() -> None:
        ready.wait(PATIENCE)
        by_socket_once(port)

    threads = [threading.Thread(target=one) for _ in range(5)]
    for thread in threads:
        thread.start()
    ready.wait(PATIENCE)
    for thread in threads:
        thread.join()


def by_tasks_at_once(port: int) -> None:
    async def talk() -> None:
        streams = await asyncio.gather(*[asyncio.open_connection("127.0.0.1", port) for _ in range(5)])
        await ask_all_streams(streams)

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("talk", "handshakes"),
    [
        (in_a_loop, 5),
        (in_a_loop_by_number, 5),
        (in_a_loop_of_tasks, 5),
        (by_threads_at_once, 1),
        (by_tasks_at_once, 1),
    ],
)
def test_connections_opened_one_after_the_other_cost_one_round_trip_each(
    port: int, talk: Callable[[int], None], handshakes: int
) -> None:
    """The case that matters is a pool that connects in a loop."""
    with Watched(LONG) as network:
        begun = time.monotonic()
        talk(port)
        assert time.monotonic() - begun >= (handshakes + 1) * LONG - 0.001
        counts = network.take()
    assert (counts.rounds, counts.handshake_rounds, counts.connections) == (handshakes + 1, handshakes, 5)


def test_without_handshakes_nobody_waits(port: int) -> None:
    """A thread that waited for a handshake would still wait after `PATIENCE`."""
    with Watched(1000.0, handshake=False) as network, socket.socket() as sock:
        thread = threading.Thread(target=sock.connect, args=(("127.0.0.1", port),))
        thread.start()
        thread.join(PATIENCE)
        waits = thread.is_alive()
        counts = network.take()
    thread.join()
    assert not waits
    assert (counts.rounds, counts.connections) == (0, 1)


def test_a_round_trip_may_be_longer_than_the_proxy_may_take_to_answer(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STARTING", 1.0)
    with Watched(1.5):
        begun = time.monotonic()
        with socket.create_connection(("127.0.0.1", port)):
            assert time.monotonic() - begun >= 1.5 - 0.001


def test_a_proxy_that_does_not_answer_is_said_not_to(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    with Watched(0) as network:
        by_socket_once(port)
        loop = network._proxy._thread.loop
        assert loop is not None
        loop.call_soon_threadsafe(go.wait)
        monkeypatch.setattr(module, "STARTING", 0.0)
        try:
            with socket.socket() as sock, pytest.raises(ProxyError, match="the proxy does not answer after 0 s"):
                sock.connect(("127.0.0.1", port))
        finally:
            go.set()
        await_forgotten(network)


def test_who_gives_up_connecting_harms_nobody(port: int) -> None:
    async def give_up() -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), RTT / 10)

    with Watched(RTT) as network:
        asyncio.run(give_up())
        by_socket_once(port)
        assert network.take().connections == 2


def await_forgotten(network: Watched) -> None:
    deadline = time.monotonic() + PATIENCE
    while (network._clients or network._numbered) and time.monotonic() < deadline:
        network.counts()  # a turn of the proxy's loop
    assert (network._clients, network._numbered) == ({}, {})


def bound(port: int = 0) -> socket.socket:
    """Return a client's socket at that port."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    return sock


def test_a_port_that_is_used_again_before_the_proxy_is_done_with_it(port: int) -> None:
    with Watched(LONG) as network:
        with bound() as sock:
            here = sock.getsockname()[1]
            sock.connect(("127.0.0.1", port))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        with bound(here) as sock:
            begun = time.monotonic()
            sock.connect(("127.0.0.1", port))  # the reset is on the way for half of this
            assert time.monotonic() - begun >= LONG - 0.001
            ask(sock, b"again\n")
            counts = network.take()
        await_forgotten(network)
    assert counts.connections == 2
    assert [content for _, content in asked(counts)] == [b"again\n"]


def test_two_connections_from_one_port() -> None:
    """A kernel gives one port to connections to different servers."""
    with answering() as one, answering() as other, Watched(0) as network:
        with bound() as first, bound(first.getsockname()[1]) as second:
            first.connect(("127.0.0.1", one))
            second.connect(("127.0.0.1", other))
            for sock in (first, second, first):
                ask(sock, b"and\n")
            counts = network.take()
        await_forgotten(network)
    assert [message.connection for message in counts.messages if message.up] == [1, 2, 1]
    assert len(asked(counts)) == 3


def test_a_new_server_while_a_connection_to_another_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy's thread must not wait for the thread that waits for it."""
    held, go, wanted = threading.Event(), threading.Event(), threading.Event()
    done: list[int] = []
    with answering() as one, answering() as other, Watched(0) as network:
        by_socket_once(one)
        proxy = network._proxy
        accepted, relay = proxy.on_accepted, proxy.relay
        assert accepted is not None

        def hold(number: int, ends: Ends) -> None:
            held.set()
            go.wait(PATIENCE)
            accepted(number, ends)

        def tell(*arguments: tuple[str, int]) -> tuple[str, int]:
            wanted.set()
            return relay(*arguments)

        def talk(port: int) -> None:
            by_socket_once(port)
            done.append(port)

        proxy.on_accepted = hold
        monkeypatch.setattr(proxy, "relay", tell)
        threads = [threading.Thread(target=talk, args=(port,)) for port in (one, other)]
        for thread, begun in zip(threads, (held, wanted), strict=True):
            thread.start()
            assert begun.wait(PATIENCE)
        go.set()
        for thread in threads:
            thread.join()
        assert sorted(done) == sorted([one, other])
