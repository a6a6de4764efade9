"""netem.proxy_connection, its sockets: what passes, when, and how much of it waits; times only from below."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading

import pytest
from on_threads import PATIENCE, read, serving
from proxied import connect, echo, read_all

from netem.effects import Cut
from netem.proxy import Proxy
from netem.proxy_connection import unsent

pytestmark = pytest.mark.sockets


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
