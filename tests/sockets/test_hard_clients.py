"""server.shell, server.tcp: too many clients, clients that stall, that do not read or never stop, on real sockets."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import MAIN, History
from dialogs import CREATE, message
from history_sources import HistorySource
from pushing import connected, push
from serving import PATIENCE, Server, User, wait_until, write_history

from netem.proxy import Proxy
from smartserver.client.updates import Outcome
from smartserver.server.session import BACKLOG_HIGH
from smartserver.verbs.repository_create import repository_create
from smartserver.verbs.repository_insert_pack import InsertPackRequest, repository_insert_pack
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Body, Cancel, Error, Event, GoAway, Ping, Reply, Request
from smartserver.wire.limits import DRAIN_BYTES, MAX_FRAME, UNREAD_BYTES
from smartserver.wire.messages import RequestFlag, decode_failure, encode

pytestmark = pytest.mark.sockets

PING = encode(message((server_ping, PingRequest()), path=""))
PULL = encode(message((repository_pull, PullRequest()), path="p"))
CALLS = ((repository_create, CREATE), (repository_insert_pack, InsertPackRequest()))
NEW = encode(message(*CALLS, path="new", flags=RequestFlag.BODY))
NOWHERE = encode(message(CALLS[1], path="nowhere", flags=RequestFlag.BODY))


@contextlib.contextmanager
def raw(port: int) -> Iterator[tuple[socket.socket, Connection]]:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        yield connection, Connection(Role.CLIENT)


@contextlib.contextmanager
def served(server: Server) -> Iterator[tuple[socket.socket, Connection]]:
    """Yield a connection that the server accepts once earlier ones have ended."""
    while True:
        with raw(server.port) as (connection, client):
            connection.sendall(client.send(Request(1, PING)))
            event: Event | None = None
            while event is None:
                client.receive_data(connection.recv(65536))
                event = client.next_event()
            if isinstance(event, Reply):
                yield connection, client
                return


def events_until_the_end(connection: socket.socket, client: Connection) -> list[Event]:
    """Return all events from the server until it closes; a reset is an error."""
    found: list[Event] = []
    while data := connection.recv(65536):
        client.receive_data(data)
        while (event := client.next_event()) is not None:
            found.append(event)
    return found


def is_reset(connection: socket.socket) -> bool:
    """Tell whether the connection ends in a reset."""
    try:
        while connection.recv(1 << 20):
            pass
    except ConnectionResetError:
        return True
    return False


def send_often(connection: socket.socket, data: bytes, times: int, *, first: bytes = b"") -> None:
    connection.sendall(first)
    for _ in range(times):
        connection.sendall(data)


def has_line(server: Server, words: str) -> bool:
    return any(words in line for line in server.log)


# -- one too many


@pytest.mark.interop
def test_the_user_who_is_one_too_many_reads_one_line(tmp_path: Path) -> None:
    user = User(tmp_path / "user")
    write_history(user, "w", 2, seed="busy", size=100)
    (tmp_path / "root").mkdir()
    with Server(tmp_path / "root", "--max-connections", "2") as server:
        user.git("push", "-q", server.url("p"), "main", folder="w").worked()
        busy = "the server is busy: it takes no more than 2 connections at a time; try again later"
        with contextlib.ExitStack() as stack:
            both = [stack.enter_context(served(server)) for _ in range(2)]
            for connection, client in both:  # Who is in the middle of a request is not let go for another.
                connection.sendall(client.send(Request(2, NEW, body=True)))
            first, client = both[0]
            rejected = user.git("push", "-q", server.url("p"), "main:refs/heads/other", folder="w")
            assert rejected.status == 1
            assert f" ! [remote rejected] main -> other ({busy})\n" in rejected.err
            assert user.git("clone", "-q", server.url("p"), "c").failed("clone") == busy
            assert user.git("ls-remote", server.url("p")).failed("ls-remote") == busy
            first.sendall(client.send(Cancel(2)))
            first.shutdown(socket.SHUT_WR)
            assert is_reset(first) is False  # Those that were there are as they were.
        wait_until(lambda: user.git("ls-remote", "-q", server.url("p")).status == 0, "there is room again")
        assert user.git("push", "-q", server.url("p"), "main:refs/heads/other", folder="w").status == 0
        assert sum("refused: " + busy in line for line in server.log) == 1  # Once a minute.


# -- clients that stop


def test_a_clone_whose_reader_stopped_is_let_go(tmp_path: Path) -> None:
    history, content = History(), random.Random("stopped")
    tip = history.commit({f"{n}": content.randbytes(1 << 20) for n in range(24)})
    with Server(tmp_path) as server, connected(server.port) as remote:
        assert push(remote, HistorySource(history), MAIN, tip).outcome is Outcome.DONE
    with Server(tmp_path, "--idle-timeout", "1") as server:
        with raw(server.port) as (connection, client):
            connection.sendall(client.send(Request(1, PULL)))
            wait_until(
                lambda: has_line(server, "dropped: the client read nothing of its answer for 1 s"), "it is dropped"
            )
            assert is_reset(connection)
        with raw(server.port) as (connection, client):
            connection.sendall(client.send(Request(1, PING)))
            assert connection.recv(1)


# -- clients that do not read


def test_answers_that_are_not_read_have_a_bound(tmp_path: Path) -> None:
    """The server does not keep a gigabyte of PINGs as PONGs, and other clients are not delayed."""
    with Server(tmp_path) as server, raw(server.port) as (connection, client):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        before = server.memory()
        pings = client.send(Ping(bytes(64)))
        pings += client.send(Ping(bytes(64))) * 10_000
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            send_often(connection, pings[73 + 7 :], 1500, first=pings)
        assert server.memory() - before < 16 * UNREAD_BYTES
        wait_until(lambda: has_line(server, "the client does not read its answers"), "the log says so")
        with raw(server.port) as (other, wire):
            other.sendall(wire.send(Request(1, PING)))
            assert other.recv(1)


# -- clients that do not stop


def test_a_refused_upload_that_goes_on_is_read_to_its_limit_and_the_refusal_arrives(tmp_path: Path) -> None:
    with Server(tmp_path) as server, raw(server.port) as (connection, client):
        connection.sendall(client.send(Request(1, NOWHERE, body=True)) + client.send(Body(1, b"x")))
        piece = bytes(MAX_FRAME)
        before_the_refusal = BACKLOG_HIGH + MAX_FRAME  # At most: what comes before it is not counted.
        for _ in range((before_the_refusal + DRAIN_BYTES) // MAX_FRAME + 8):
            connection.sendall(client.send(Body(1, piece)))
        error, goaway = events_until_the_end(connection, client)
        assert isinstance(error, Error)
        assert decode_failure(error.payload).fault.code == "no-such-repository"
        assert goaway == GoAway(b"the upload was refused: more than 67108864 bytes came after that")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            send_often(connection, piece, 2 * DRAIN_BYTES // MAX_FRAME)


def test_a_refusal_is_not_eaten_by_a_reset_on_a_slow_link(tmp_path: Path) -> None:
    """The client sends a megabyte before it reads; the server has answered and closed its side long before."""
    with Server(tmp_path) as server, Proxy(0.1, ("127.0.0.1", server.port), rate=4_000_000) as proxy:
        with raw(proxy.port) as (connection, client):
            connection.sendall(client.send(Request(1, NOWHERE, body=True)))
            for _ in range(4):
                connection.sendall(client.send(Body(1, bytes(MAX_FRAME))))
            connection.sendall(client.send(Cancel(1)))
            connection.shutdown(socket.SHUT_WR)
            (error,) = events_until_the_end(connection, client)
            assert isinstance(error, Error)
        with raw(proxy.port) as (connection, client):
            connection.sendall(b"hpss/2\n" + bytes(1 << 20))
            said = b""
            while data := connection.recv(100):
                said += data
            assert said == b"hpss! 1\n"
