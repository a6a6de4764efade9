"""netem.proxy between real sockets: counts are asserted, and times only from below."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest
from on_threads import PATIENCE, echo, read, serving
from proxied import LONG, RTT, ask, connect, read_all

from netem.counter import Counts
from netem.effects import Blackhole, Stall
from netem.link import Link
from netem.proxy import Proxy, ProxyError

pytestmark = pytest.mark.sockets


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
