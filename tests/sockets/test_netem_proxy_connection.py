"""netem.proxy_connection: how connections begin and end, what passes, and how much of it waits; times from below."""

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
from on_threads import PATIENCE, echo, read, serving
from proxied import RTT, ask, connect, nobody, read_all

from netem.effects import Cut
from netem.link import Link
from netem.proxy import Proxy
from netem.proxy_connection import KERNEL_BUFFER, ProxyConnection, unsent

pytestmark = pytest.mark.sockets


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
