"""netem.watched: a program that opens its sockets itself, in each of the ways of Python programs; and what it leaves
alone: connections that are not meant, and every socket once it is left."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from on_threads import serving
from watching import PATIENCE, RTT, answering, ask, asked, by_socket_once, read_line

from netem import watched as module
from netem.budget import NothingCounted, explain, round_trips
from netem.callsites import CallSite
from netem.patches import Patches
from netem.proxy import Proxy
from netem.watched import AlreadyWatched, Watched, _is_loopback

pytestmark = pytest.mark.sockets

HERE = Path(__file__).resolve()


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


def by_thread(port: int) -> None:
    thread = threading.Thread(target=by_socket, args=(port,))
    thread.start()
    thread.join()


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
        (by_thread, "# by_socket", "by_socket"),
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


def test_ipv6() -> None:
    with answering("::1") as port, Watched(RTT) as network:
        with socket.create_connection(("::1", port)) as sock:
            sock.sendall(b"six\n")
            assert read_line(sock) == b"re: six\n"
        assert network.take().connections == 1


@pytest.mark.parametrize(
    ("family", "address"),
    [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::ffff:127.0.0.1"), (socket.AF_INET6, "::ffff:0.0.0.0")],
)
def test_other_names_of_this_machine(port: int, family: socket.AddressFamily, address: str) -> None:
    with Watched(RTT) as network:
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
