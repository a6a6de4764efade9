"""The proxy between real sockets: counts are asserted, and times only from below."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netem.budget import TooManyRoundTrips, round_trips
from netem.callsites import CallSite, CallSites
from netem.counter import Counts
from netem.effects import Blackhole, Corrupt, Cut, Delay, Loss, Stall
from netem.link import Link
from netem.proxy import Proxy, ProxyError

pytestmark = pytest.mark.sockets

ROOT = Path(__file__).resolve().parents[2]
RTT = 0.04
LONG = 0.2
"""An RTT for what must be sent within one, on a machine that has other things to do."""
PATIENCE = 30.0
"""Seconds after which a test is stuck; nothing waits for it otherwise."""

PROXY = [sys.executable, "-c", "import sys; from netem.cli.main import main; sys.exit(main())", "proxy"]

Serve = Callable[[socket.socket], None]


class Server:
    """Runs `serve` on a thread for each connection; what it raised is raised at the end."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._socket.getsockname()
        self._stopping = False
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []
        self._acceptor = threading.Thread(target=self._accept)
        self._acceptor.start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            if self._stopping:
                connection.close()
                return
            connection.settimeout(PATIENCE)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(target=self._run, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _run(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._serve(connection)
            except BaseException as error:
                self._errors.append(error)

    def close(self) -> None:
        self._stopping = True
        socket.create_connection(self.address).close()
        self._acceptor.join(PATIENCE)
        self._socket.close()
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "the server still waits"
        for error in self._errors:
            raise error


@contextlib.contextmanager
def serving(serve: Serve) -> Iterator[Server]:
    server = Server(serve)
    try:
        yield server
    finally:
        server.close()


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


def connect(proxy: Proxy) -> socket.socket:
    client = socket.create_connection((proxy.host, proxy.port), PATIENCE)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def read(client: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        more = client.recv(size - len(got))
        assert more, f"the stream ended after {len(got)} of {size} bytes"
        got += more
    return got


def ask(client: socket.socket, text: bytes = b"ask") -> None:
    client.sendall(text)
    assert read(client, len(text)) == text


def read_all(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(1 << 16), b""))


# Round trips


def test_a_request_on_a_fresh_connection_is_two_and_on_a_held_one_one() -> None:
    with serving(echo) as server, Proxy(RTT, server.address) as proxy:
        begun = time.monotonic()
        with connect(proxy) as client:
            ask(client)
            assert time.monotonic() - begun >= 2 * RTT - 0.001
            cold = proxy.take()
            for _ in range(3):
                ask(client)
                assert proxy.take().rounds == 1
    assert (cold.rounds, cold.handshake_rounds, cold.rounds_without_handshake) == (2, 1, 1)
    assert (cold.connections, cold.bytes_up, cold.bytes_down) == (1, 3, 3)
    assert cold.seconds >= 2 * RTT - 0.001
    assert cold.application_rounds is None


@pytest.mark.parametrize("times", [1, 4])
def test_ping_pong(times: int) -> None:
    with serving(echo) as server, Proxy(RTT, server.address) as proxy, connect(proxy) as client:
        begun = time.monotonic()
        for _ in range(times):
            ask(client)
        assert time.monotonic() - begun >= (times + 1) * RTT - 0.001
        counts = proxy.take()
    assert counts.rounds == times + 1
    assert (counts.flights_up, counts.flights_down) == (times, times)


def test_pipelined_requests_are_one() -> None:
    with serving(echo) as server, Proxy(LONG, server.address) as proxy, connect(proxy) as client:
        ask(client)
        proxy.take()
        for n in range(20):
            client.sendall(bytes([n]))
        assert read(client, 20) == bytes(range(20))
        counts = proxy.take()
    assert (counts.rounds, counts.flights_up, counts.flights_down) == (1, 1, 1)


def test_a_reply_that_tcp_splits_is_one_message() -> None:
    def serve(connection: socket.socket) -> None:
        while connection.recv(10):
            for _ in range(10):
                connection.sendall(b"part")
                time.sleep(0.001)

    with serving(serve) as server, Proxy(RTT, server.address) as proxy, connect(proxy) as client:
        client.sendall(b"ask")
        read(client, 40)
        counts = proxy.take()
    assert (counts.rounds, counts.flights_down, counts.bytes_down) == (2, 1, 40)


def test_full_duplex_streaming_is_not_counted_as_many() -> None:
    size = 4_000_000

    def serve(connection: socket.socket) -> None:
        sender = threading.Thread(target=lambda: connection.sendall(bytes(size)))
        sender.start()
        read(connection, size)
        sender.join()
        read_all(connection)

    rtt = 0.5  # well over the time the streaming takes
    with serving(serve) as server, Proxy(rtt, server.address) as proxy, connect(proxy) as client:
        sender = threading.Thread(target=lambda: client.sendall(bytes(size)))
        sender.start()
        read(client, size)
        sender.join()
        counts = proxy.take()
    assert (counts.bytes_up, counts.bytes_down) == (size, size)
    # About 60 chunks crossed each way. On a slow machine the streams may last some round trips.
    assert counts.rounds <= 2 + counts.seconds / rtt
    assert counts.flights_up + counts.flights_down <= 2 * counts.rounds + 2


def test_two_connections_side_by_side_and_one_after_the_other() -> None:
    with serving(echo) as server, Proxy(LONG, server.address) as proxy:
        with connect(proxy) as one, connect(proxy) as two:
            one.sendall(b"a")
            two.sendall(b"b")
            assert read(one, 1) + read(two, 1) == b"ab"
            side_by_side = proxy.take()
        with connect(proxy) as one:
            ask(one)
        with connect(proxy) as two:
            ask(two)
            in_turn = proxy.take()
    assert (side_by_side.rounds, side_by_side.handshake_rounds, side_by_side.connections) == (2, 1, 2)
    assert (in_turn.rounds, in_turn.connections) == (4, 2)


def test_a_server_that_speaks_first() -> None:
    def serve(connection: socket.socket) -> None:
        connection.sendall(b"hello")
        echo(connection)

    with serving(serve) as server, Proxy(RTT, server.address) as proxy:
        begun = time.monotonic()
        with connect(proxy) as client:
            assert read(client, 5) == b"hello"
            assert time.monotonic() - begun >= 2 * RTT - 0.001
            assert proxy.counts().rounds == 2
            ask(client)
            assert proxy.take().rounds == 3


def test_the_handshake_may_be_left_out() -> None:
    with serving(echo) as server, Proxy(RTT, server.address, handshake=False) as proxy, connect(proxy) as client:
        ask(client)
        assert proxy.take().rounds == 1


def test_an_early_answer_during_an_upload() -> None:
    def serve(connection: socket.socket) -> None:
        read(connection, 1000)
        connection.sendall(b"no")
        with contextlib.suppress(ConnectionError):
            read_all(connection)

    rate, rtt, upload = 200_000, 0.3, 5_000_000
    with serving(serve) as server, Proxy(rtt, server.address, rate=rate) as proxy, connect(proxy) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 * 1024)
        client.setblocking(False)
        rest = memoryview(bytes(upload))
        while True:
            with contextlib.suppress(BlockingIOError):
                assert client.recv(9) == b"no"
                break
            with contextlib.suppress(BlockingIOError):
                rest = rest[client.send(rest[:16384]) :]
            time.sleep(0.001)
        counts = proxy.take()
        sent = upload - len(rest)
        # What the link took in that time, and what buffers hold: not the whole upload.
        assert counts.rounds == 2
        assert counts.bytes_up <= rate * counts.seconds + 512 * 1024
        assert sent < upload / 3


def test_take_gives_each_operation_alone() -> None:
    with serving(echo) as server, Proxy(RTT, server.address) as proxy:
        with connect(proxy) as client:
            ask(client, b"12345")
            assert proxy.counts() == proxy.take()
            assert not proxy.take().used
        with connect(proxy) as client, round_trips(proxy, at_most=2) as taken:
            ask(client)
    assert taken.counts.bytes_up == 3


def test_too_many_is_said_with_the_messages() -> None:
    def twice(proxy: Proxy) -> None:
        with round_trips(proxy, at_most=2), connect(proxy) as client:
            ask(client)
            ask(client)

    said = r"(?s)took 3 round trips.*-> server  depth 3 .*client <-  depth 6"
    with serving(echo) as server, Proxy(RTT, server.address) as proxy, pytest.raises(TooManyRoundTrips, match=said):
        twice(proxy)


# Ends of streams


def test_half_close_is_passed_on_and_the_answer_comes_back() -> None:
    def serve(connection: socket.socket) -> None:
        connection.sendall(b"%d bytes" % len(read_all(connection)))

    with serving(serve) as server, Proxy(RTT, server.address) as proxy, connect(proxy) as client:
        client.sendall(b"12345")
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b"5 bytes"
        counts = proxy.take()
    assert counts.rounds == 2
    assert counts.messages[-1].end


def test_the_end_of_a_stream_is_delayed_like_its_bytes() -> None:
    def serve(connection: socket.socket) -> None:
        connection.sendall(connection.recv(9))

    with serving(serve) as server, Proxy(RTT, server.address) as proxy:
        begun = time.monotonic()
        with connect(proxy) as client:
            client.sendall(b"x")
            assert read_all(client) == b"x"
        assert time.monotonic() - begun >= 2 * RTT - 0.001


def test_a_server_that_is_not_there_closes_the_connection_after_the_delay() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = unused.getsockname()
    refused: list[OSError] = []
    with Proxy(RTT, address, on_refused=refused.append) as proxy:
        begun = time.monotonic()
        with connect(proxy) as client:
            assert client.recv(9) == b""
        assert time.monotonic() - begun >= RTT - 0.001
        counts = proxy.take()
    assert (counts.rounds, counts.connections, counts.bytes_up) == (1, 1, 0)
    assert [type(error) for error in refused] == [ConnectionRefusedError]


def test_a_server_that_resets_resets_the_client_after_what_it_sent() -> None:
    def serve(connection: socket.socket) -> None:
        connection.sendall(connection.recv(9))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with serving(serve) as server, Proxy(RTT, server.address) as proxy, connect(proxy) as client:
        client.sendall(b"x")
        assert read(client, 1) == b"x"
        with pytest.raises(ConnectionResetError):
            client.recv(9)


def test_a_client_that_resets_resets_the_server() -> None:
    ended = threading.Event()

    def serve(connection: socket.socket) -> None:
        assert read(connection, 1) == b"x"
        with pytest.raises(ConnectionResetError):
            connection.recv(9)
        ended.set()

    with serving(serve) as server, Proxy(RTT, server.address) as proxy:
        client = connect(proxy)
        client.sendall(b"x")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        assert ended.wait(PATIENCE)


def test_a_client_that_leaves_in_the_middle_of_a_download_ends_the_server() -> None:
    stopped = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(9)
        with contextlib.suppress(ConnectionError):
            while True:
                connection.sendall(bytes(1 << 16))
        stopped.set()

    with serving(serve) as server, Proxy(0.01, server.address, window=1 << 20) as proxy:
        with connect(proxy) as client:
            client.sendall(b"x")
            read(client, 100_000)
        assert stopped.wait(PATIENCE)


def test_closing_the_proxy_leaves_nobody_waiting() -> None:
    begun, ended = threading.Event(), threading.Event()

    def serve(connection: socket.socket) -> None:
        read(connection, 1)
        begun.set()
        with contextlib.suppress(ConnectionError):
            read_all(connection)
        ended.set()

    with serving(serve) as server:
        proxy = Proxy(RTT, server.address)
        proxy.start()
        with connect(proxy) as client:
            client.sendall(b"x")
            assert begun.wait(PATIENCE)
            proxy.close()
            proxy.close()
            assert ended.wait(PATIENCE)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(9) == b""
        assert proxy.take().bytes_up == 1


# Volume and effects


@pytest.mark.parametrize("rtt", [0, 0.02])
def test_much_passes_unharmed_both_ways(rtt: float) -> None:
    text = bytes(range(256)) * 40_000
    with serving(echo) as server, Proxy(rtt, server.address) as proxy, connect(proxy) as client:

        def send() -> None:
            client.sendall(text)
            client.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        assert read_all(client) == text
        sender.join()
        counts = proxy.take()
    assert (counts.bytes_up, counts.bytes_down) == (len(text), len(text))


def test_a_receiver_that_does_not_read_stops_the_sender() -> None:
    sent = [0]
    finish = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(9)
        while not finish.is_set():
            connection.settimeout(0.3)
            try:
                sent[0] += connection.send(bytes(1 << 16))
            except TimeoutError:
                finish.set()

    window = 1 << 20
    with serving(serve) as server, Proxy(0.01, server.address, window=window) as proxy, connect(proxy) as client:
        client.sendall(b"x")
        assert finish.wait(PATIENCE)
        counts = proxy.counts()
        assert counts.bytes_down >= window
        # The window, one read of the loop, and what the kernel holds on the way to the client (at most 6 MiB on Linux).
        assert counts.bytes_down <= window + (1 << 18) + (10 << 20)
        read(client, sent[0])


def test_rate() -> None:
    with serving(echo) as server, Proxy(0.02, server.address, rate=500_000) as proxy:
        begun = time.monotonic()
        with connect(proxy) as client:
            client.sendall(bytes(100_000))
            read(client, 100_000)
        # Both ways overlap; each takes 0.2 s.
        assert time.monotonic() - begun >= 0.2 + 0.04 - 0.001


def test_cut_after_so_many_bytes() -> None:
    received = bytearray()

    def serve(connection: socket.socket) -> None:
        received.extend(read(connection, 1000))
        with pytest.raises(ConnectionResetError):
            connection.recv(9)

    with serving(serve) as server, Proxy(0.01, server.address, up=[Cut(1000)]) as proxy, connect(proxy) as client:
        client.sendall(bytes(5000))
        with pytest.raises(ConnectionResetError):
            client.recv(9)
    assert len(received) == 1000


def test_what_the_kernel_still_holds_is_sent_before_the_reset() -> None:
    """The cut has come out, and the server is reset, before the client reads the first byte."""
    size = 1 << 18
    lost = threading.Event()

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                connection.sendall(bytes(1 << 16))
        lost.set()

    with serving(serve) as server, Proxy(0.01, server.address, down=[Cut(size)]) as proxy, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        client.settimeout(PATIENCE)
        client.connect((proxy.host, proxy.port))
        assert lost.wait(PATIENCE)
        assert len(read(client, size)) == size
        with pytest.raises(ConnectionResetError):
            client.recv(9)


def test_stall_and_extra_delay() -> None:
    with serving(echo) as server, Proxy(0, server.address, down=[Stall(2, 0.1), Delay(0.05)]) as proxy:
        begun = time.monotonic()
        with connect(proxy) as client:
            client.sendall(b"abcd")
            assert read(client, 2) == b"ab"
            assert read(client, 2) == b"cd"
        assert time.monotonic() - begun >= 0.15 - 0.001


# Failures


def test_a_port_that_is_taken_is_told_at_the_start() -> None:
    with serving(echo) as server, pytest.raises(OSError, match="in use"):
        Proxy(RTT, server.address, listen=server.address).start()


def test_an_error_in_the_thread_is_raised_to_whoever_asks() -> None:
    def bug(_: Counts) -> None:
        raise RuntimeError("bug")

    with serving(echo) as server:
        proxy = Proxy(0.0, server.address, on_operation=bug)
        proxy.start()
        with connect(proxy) as client:
            ask(client)
        assert proxy._thread is not None
        proxy._thread.join(PATIENCE)
        with pytest.raises(ProxyError, match="bug"):
            proxy.take()
        proxy.close()


# The pytest fixture


@pytest.mark.max_round_trips(3)
def test_the_fixture_is_counted(proxy: Callable[..., Proxy]) -> None:
    with serving(echo) as server, connect(proxy(server.address, rtt=0.02)) as client:
        ask(client)
        ask(client)


# The command


@contextlib.contextmanager
def command(*words: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    process = subprocess.Popen(
        [*PROXY, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        assert "listening on" in said, said
        yield process, int(said.split(",")[0].rpartition(":")[2])
    finally:
        process.kill()
        process.communicate()


def operation(port: int, times: int = 1) -> None:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        for _ in range(times):
            ask(client)


def test_the_command_prints_a_line_an_operation_and_a_total() -> None:
    with serving(echo) as server:
        to = f"{server.address[0]}:{server.address[1]}"
        with command("--rtt", "20ms", "--listen", ":0", "--to", to) as (process, port):
            operation(port)
            operation(port, 3)  # at once after the first: its connection has not quite ended
            assert process.stdout is not None
            lines = [process.stdout.readline(), process.stdout.readline()]
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
    assert lines[0].startswith("2 round trips (1 handshake), 1 connection, 3 B up, 3 B down, 0.0")
    assert lines[1].startswith("4 round trips (1 handshake), 1 connection, 9 B up, 9 B down, 0.")
    assert out.startswith("total of 2 operations: 6 round trips (2 handshakes), 2 connections, 12 B up, 12 B down, 0.")
    assert (process.returncode, err) == (0, "")


def test_the_command_in_json_says_so_when_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        to = f"127.0.0.1:{unused.getsockname()[1]}"
    with command("--rtt", "20ms", "--listen", ":0", "--to", to, "--json") as (process, port):
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
            assert client.recv(9) == b""
        assert process.stdout is not None
        one = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE)
    assert (one["rounds"], one["connections"]) == (1, 1)
    assert json.loads(out)["total"] is True
    assert err == f"netem: cannot connect to {to}: Connection refused\n"
    assert process.returncode == 0


def test_the_command_says_when_it_cannot_listen() -> None:
    with serving(echo) as server:
        where = f"{server.address[0]}:{server.address[1]}"
        words = [*PROXY, "--rtt", "1ms", "--listen", where, "--to", where]
        run = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == f"netem: cannot listen on {where}: Address already in use\n"


def test_a_change_of_the_link_heals_open_connections() -> None:
    with serving(echo) as server, Proxy(RTT, server.address, up=[Stall(2)]) as proxy, connect(proxy) as client:
        client.sendall(b"abcd")
        assert read(client, 2) == b"ab"
        proxy.change(Link(RTT))
        assert read(client, 2) == b"cd"
        proxy.change(Link(RTT, down=[Blackhole()]))
        ask_in_vain = b"efgh"
        client.sendall(ask_in_vain)
        while proxy.counts().bytes_down < 8:
            pass
        proxy.change(Link(RTT))
        assert read(client, 4) == ask_in_vain
        with pytest.raises(ValueError, match="loss is of packets"):
            proxy.change(Link(RTT, up=[Loss(0.5)]))


def test_what_happens_by_chance_is_each_connections_and_each_directions_own() -> None:
    with serving(echo) as server, Proxy(RTT, server.address, up=[Corrupt(1)], down=[Corrupt(1)]) as proxy:
        seen = []
        for _ in range(2):
            with connect(proxy) as client:
                client.sendall(bytes(1000))
                seen.append(read(client, 1000))
    # Had both directions the same chance, the second would undo what the first did.
    assert [sum(byte.bit_count() for byte in answer) for answer in seen] == [2, 2]
    assert seen[0] != seen[1]


def test_several_servers_are_one_network() -> None:
    """What is asked of the second because of the first's answer is deeper."""
    with serving(echo) as first, serving(echo) as second, Proxy(RTT, first.address) as proxy:
        for address in ((proxy.host, proxy.port), proxy.relay(second.address)):
            with socket.create_connection(address) as sock:
                sock.sendall(b"ping")
                assert sock.recv(9) == b"ping"
        counts = proxy.take()
    assert (counts.connections, counts.rounds) == (2, 4)


def test_a_proxy_may_begin_without_a_server() -> None:
    with (
        serving(echo) as server,
        Proxy(RTT, None) as proxy,
        socket.create_connection(proxy.relay(server.address)) as sock,
    ):
        sock.sendall(b"ping")
        assert sock.recv(9) == b"ping"
        with pytest.raises(OSError, match="in use"):
            proxy.relay(server.address, server.address)
        assert proxy.take().rounds == 2
    with pytest.raises(ProxyError, match="does not run"):
        proxy.relay(server.address)


def test_who_sent_is_asked_for_all_that_a_client_sends() -> None:
    site = CallSite("program.py", 1, "f")
    asked: list[tuple[tuple[str, int], int]] = []

    def sites(client: tuple[str, int], size: int) -> CallSites:
        asked.append((client[:2], size))
        return (site,)

    with serving(echo) as server, Proxy(RTT, server.address) as proxy:
        proxy.sites = sites
        with socket.create_connection((proxy.host, proxy.port)) as sock:
            client = sock.getsockname()
            sock.sendall(b"ping")
            assert sock.recv(9) == b"ping"
            counts = proxy.take()
    assert {each for each, _ in asked} == {client}
    assert sum(size for _, size in asked) == 4
    assert [(message.content, message.sites) for message in counts.messages] == [(b"ping", (site,)), (b"ping", ())]
