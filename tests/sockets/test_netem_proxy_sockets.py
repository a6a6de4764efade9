"""netem.proxy, netem.proxy_connection between real sockets: how connections begin and end, what passes, how much of it
waits, and what is counted; times are asserted only from below."""

from __future__ import annotations

import contextlib
import gc
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
from on_threads import PATIENCE, ask, echo, nobody, read, serving

from netem.counter import Counts
from netem.effects import Blackhole, Cut, Stall
from netem.link import Link
from netem.proxy import Proxy, ProxyError
from netem.proxy_connection import KERNEL_BUFFER, ProxyConnection, unsent

pytestmark = pytest.mark.sockets

RTT = 0.04
LONG = 0.2
"""An RTT within which a busy machine surely sends the next bytes."""


def connect(proxy: Proxy) -> socket.socket:
    client = socket.create_connection((proxy.host, proxy.port), PATIENCE)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def read_all(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(1 << 16), b""))


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
    refused: list[OSError] = []
    with nobody() as address, Proxy(RTT, address, on_refused=refused.append) as proxy:
        begun = time.monotonic()
        with connect(proxy) as client:
            assert client.recv(9) == b""
        assert time.monotonic() - begun >= RTT - 0.001
        counts = proxy.take()
    assert (counts.rounds, counts.connections, counts.bytes_up) == (1, 1, 0)
    assert counts.seconds >= RTT - 0.001
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


def test_on_a_link_with_a_rate_little_waits_in_the_kernel() -> None:
    with serving(echo) as server, Proxy(RTT, server.address, rate=1e6) as proxy, connect(proxy) as client:
        ask(client)
        for size in receive_buffers(proxy):
            assert KERNEL_BUFFER <= size <= 2 * KERNEL_BUFFER  # Linux doubles what it is asked for


def test_so_it_does_on_a_link_that_gets_a_rate_later() -> None:
    """By then much was read, and the kernel has let the buffers grow."""
    with serving(echo) as server, Proxy(0, server.address) as proxy, connect(proxy) as client:
        for _ in range(200):
            ask(client, bytes(1 << 16))
        proxy.change(Link(0, rate=1e6))
        for size in receive_buffers(proxy):
            assert KERNEL_BUFFER <= size <= 2 * KERNEL_BUFFER
        proxy.change(Link(0))
        ask(client)


def receive_buffers(proxy: Proxy) -> list[int]:
    connection: ProxyConnection
    (connection,) = proxy._connections
    sockets = [end.transport.get_extra_info("socket") for end in (connection.client, connection.server)]
    return [each.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) for each in sockets]


@pytest.mark.parametrize("turns", range(5))
def test_what_is_accepted_as_the_proxy_closes_is_closed_with_it(turns: int) -> None:
    """So many turns of its loop after the client has connected."""
    with serving(echo) as server, Proxy(0.0, server.address) as proxy, contextlib.ExitStack() as clients:
        loop, stop, thread = proxy._thread.loop, proxy._thread.stopping, proxy._thread.thread
        assert loop
        assert stop
        assert thread
        close: Callable[[], object] = stop.set
        for _ in range(turns):
            close = partial(loop.call_soon, close)

        def connect_and_close() -> None:
            clients.enter_context(connect(proxy))
            close()

        loop.call_soon_threadsafe(connect_and_close)
        thread.join(PATIENCE)
    gc.collect()  # what was lost is warned of, and a warning is an error


# -- sockets


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
                if sent[0] >= window:  # Before that it is the machine that pauses.
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


def test_what_a_socket_took_and_has_not_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        assert unsent(client) == 0
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                client.send(bytes(1 << 20))
        assert (unsent(client) > 0) is (sys.platform == "linux")  # no other kernel tells
    assert unsent(client) == 0


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


def test_connections_opened_within_one_round_trip_look_side_by_side_and_later_ones_do_not() -> None:
    """The kernel accepts at once, so a client that opens connections in turn may open them within a round trip. The
    proxy cannot distinguish these from parallel ones. One opened after the previous handshake counts as later."""
    with serving(echo) as server, Proxy(LONG, server.address) as proxy:
        with connect(proxy) as one, connect(proxy) as two:
            one.sendall(b"a")
            two.sendall(b"b")
            assert read(one, 1) + read(two, 1) == b"ab"
            side_by_side = proxy.take()
        over = threading.Event()
        proxy.on_established = lambda _: over.set()
        with connect(proxy) as one:
            assert over.wait(PATIENCE)
            with connect(proxy) as two:
                one.sendall(b"a")
                two.sendall(b"b")
                assert read(one, 1) + read(two, 1) == b"ab"
                later = proxy.take()
        with connect(proxy) as one:
            ask(one)
        with connect(proxy) as two:
            ask(two)
            in_turn = proxy.take()
    assert (side_by_side.rounds, side_by_side.handshake_rounds, side_by_side.connections) == (2, 1, 2)
    assert (later.rounds, later.handshake_rounds, later.connections) == (3, 2, 2)
    assert (in_turn.rounds, in_turn.connections) == (4, 2)


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


def test_an_error_in_the_thread_is_raised_to_whoever_asks() -> None:
    def bug(_: Counts) -> None:
        raise RuntimeError("bug")

    with serving(echo) as server:
        proxy = Proxy(0.0, server.address, on_operation=bug)
        proxy.start()
        with connect(proxy) as client:
            ask(client)
        assert proxy._thread.thread is not None
        proxy._thread.thread.join(PATIENCE)
        with pytest.raises(ProxyError, match="bug"):
            proxy.take()
        proxy.close()


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


def test_open_connections_can_be_forgotten_alone() -> None:
    with serving(echo) as server, Proxy(RTT, server.address) as proxy, connect(proxy) as client:
        ask(client)
        proxy.change_open(Link(RTT, down=[Blackhole()]))
        client.sendall(b"in vain")
        with connect(proxy) as another:
            ask(another)
            while proxy.counts().bytes_down < 3 + 3 + 7:
                pass
        proxy.change_open(Link(RTT))
        assert read(client, 7) == b"in vain"


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
    with pytest.raises(ProxyError, match="the proxy was not started, or is closed"):
        proxy.relay(server.address)
