"""netem.proxy between real sockets: counts are asserted, and times only from below."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

import pytest
from proxied import LONG, PATIENCE, RTT, ask, connect, echo, read, read_all, serving

from netem.budget import TooManyRoundTrips, round_trips
from netem.callsites import CallSite, CallSites
from netem.counter import Counts
from netem.effects import Blackhole, Corrupt, Loss, Stall
from netem.link import Link
from netem.proxy import Proxy, ProxyError
from netem.proxy_connection import Ends

pytestmark = pytest.mark.sockets


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


def test_connections_opened_within_one_round_trip_look_side_by_side_and_later_ones_do_not() -> None:
    """The kernel accepts at once, so a client that opens one after the other does so within a round trip: the proxy
    cannot tell. What it opens when the handshake before is over is later."""
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


def test_an_early_answer_during_an_upload() -> None:
    def serve(connection: socket.socket) -> None:
        read(connection, 1000)
        connection.sendall(b"no")
        with contextlib.suppress(ConnectionError):
            read_all(connection)

    rate, rtt, held, sent, chunk = 200_000, 0.3, 1_500_000, 0, bytes(16384)  # `held`: what buffers hold at the most
    with serving(serve) as server, Proxy(rtt, server.address, rate=rate) as proxy, connect(proxy) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 * 1024)
        client.setblocking(False)
        begun = time.monotonic()
        while True:  # an upload without an end: its answer must come before
            with contextlib.suppress(BlockingIOError):
                assert client.recv(9) == b"no"
                break
            with contextlib.suppress(BlockingIOError):
                sent += client.send(chunk)
            time.sleep(0.001)
        elapsed = time.monotonic() - begun
        counts = proxy.take()
        # What the link took in that time, and what buffers hold: a pause of the machine only adds to the time.
        assert counts.rounds == 2
        assert counts.bytes_up <= rate * counts.seconds + 512 * 1024
        assert sent <= rate * elapsed + held


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
        with pytest.raises(ValueError, match="loss is of packets"):
            proxy.change(Link(RTT, up=[Loss(0.5)]))


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
    with pytest.raises(ProxyError, match="the proxy was not started, or is closed"):
        proxy.relay(server.address)


def test_who_sent_is_asked_for_all_that_a_client_sends() -> None:
    site = CallSite("program.py", 1, "f")
    asked: list[tuple[int, int]] = []
    accepted: list[tuple[int, Ends]] = []

    def sites(number: int, size: int) -> CallSites:
        asked.append((number, size))
        return (site,)

    with serving(echo) as server, Proxy(RTT, server.address) as proxy:
        proxy.sites = sites
        proxy.on_accepted = lambda *told: accepted.append(told)
        with socket.create_connection((proxy.host, proxy.port)) as sock:
            ends = sock.getsockname(), sock.getpeername()
            sock.sendall(b"ping")
            assert sock.recv(9) == b"ping"
            counts = proxy.take()
    assert accepted == [(1, ends)]
    assert {number for number, _ in asked} == {1}
    assert sum(size for _, size in asked) == 4
    assert [(message.content, message.sites) for message in counts.messages] == [(b"ping", (site,)), (b"ping", ())]


@pytest.mark.max_round_trips(3)
def test_the_fixture_is_counted(proxy: Callable[..., Proxy]) -> None:
    with serving(echo) as server, connect(proxy(server.address, rtt=0.02)) as client:
        ask(client)
        ask(client)
