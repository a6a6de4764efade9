"""netem.watched: observations of connections, from their opening until no trace of them is left."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest
from watching import PATIENCE, RTT, answering, ask, asked, by_socket_once, read_line

from netem import watched as module
from netem.proxy import ProxyError
from netem.proxy_connection import Ends
from netem.watched import Watched

pytestmark = pytest.mark.sockets

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
