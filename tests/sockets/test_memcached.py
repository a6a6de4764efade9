"""server.memcached, with the real memcached: texts come from it, and whatever becomes of it no answer is wrong."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from urllib.parse import unquote_to_bytes

import pytest
from builders import MAIN, History, joined, push
from counting import Counting
from memory_transport import MemoryTransport
from needs import needs, program
from processes import Listening, free_port
from strangers import stranger

from smartserver.server.memcached import MOST, Memcached
from smartserver.store.caches import TextCache
from smartserver.store.repository import PackRepository

pytestmark = [pytest.mark.sockets, needs("memcached")]


class Process(Listening):
    """A memcached of its own."""

    def __init__(self) -> None:
        port, user = free_port(), ["-u", "root"] if os.geteuid() == 0 else []
        super().__init__([program("memcached"), "-l", "127.0.0.1", "-p", str(port), "-U", "0", *user], port)


@pytest.fixture
def one() -> Iterator[Process]:
    with Process() as made:
        yield made


class Texts:
    """A repository with some texts, and servers that have nothing cached but what memcached has."""

    def __init__(self) -> None:
        self.storage = MemoryTransport()
        self.history = History()
        line = self.history.line(30)
        push(PackRepository(self.storage), self.history, line, {MAIN: line[-1]})
        self.expected = {key: record.text for key, record in self.history.objects.items()}

    def read(self, remote: Memcached) -> dict[str, int]:
        """Read all texts in a new server; what was counted."""
        texts, counting = TextCache(), Counting()
        texts.remote = remote
        snapshot = PackRepository(self.storage, texts=texts).snapshot()
        for key, text in self.expected.items():
            found = snapshot.text(0, key)
            assert found is not None
            assert joined(found) == text
        return {name: count for name, count in counting.named.items() if name.startswith("memcached")}


@pytest.fixture
def texts() -> Texts:
    return Texts()


@contextmanager
def at(*servers: Process) -> Iterator[Memcached]:
    with closing(Memcached([("127.0.0.1", server.port) for server in servers])) as remote:
        yield remote


def test_texts_that_one_server_read_come_from_memcached(one: Process, texts: Texts) -> None:
    count = len(texts.expected)
    with at(one) as remote:
        assert texts.read(remote) == {"memcached_misses": count}
    with at(one) as remote:
        found = texts.read(remote)
    assert found.pop("memcached_found_bytes") > sum(map(len, texts.expected.values()))
    assert found == {"memcached_hits": count}


def test_what_somebody_else_put_there_is_not_believed(one: Process, texts: Texts) -> None:
    hits = 0
    while hits < len(texts.expected):  # What takes too long, on a machine that does other work, is not put.
        with at(one) as remote:
            hits = texts.read(remote).get("memcached_hits", 0)
    with socket.create_connection(("127.0.0.1", one.port)) as connection:
        stream = connection.makefile("rwb")
        stream.write(b"lru_crawler metadump all\r\n")
        stream.flush()
        keys = []
        while (line := stream.readline()) not in (b"END\r\n", b""):
            keys.append(unquote_to_bytes(line.split()[0].removeprefix(b"key=")))
        assert len(keys) == len(texts.expected)
        for number, key in enumerate(keys):
            stream.write(b"get %b\r\n" % key)
            stream.flush()
            length = int(stream.readline().split()[3])
            value = bytearray(stream.read(length + 2)[:-2])
            stream.readline()
            if number % 3 == 0:
                value[-1 if len(value) > 4 else 0] ^= 1
            elif number % 3 == 1:
                value = value[: len(value) // 2]
            else:
                value = bytearray(b"\xff" * 3)
            stream.write(b"set %b 0 0 %d\r\n%b\r\n" % (key, len(value), bytes(value)))
            stream.flush()
            assert stream.readline() == b"STORED\r\n"
    with at(one) as remote:
        assert texts.read(remote)["memcached_hits"] == len(keys)  # And each is right.


def test_a_server_that_stalls_is_waited_for_once(one: Process, texts: Texts) -> None:
    with at(one) as remote:
        texts.read(remote)
        one.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, one.process.pid, os.WSTOPPED | os.WNOWAIT)  # Its threads stop one by one.
        found = texts.read(remote)
    assert found["memcached_failures"] == 1
    assert "memcached_hits" not in found


def test_of_two_servers_one_may_die(one: Process, texts: Texts) -> None:
    with Process() as other, at(one, other) as remote:
        texts.read(remote)
        one.process.kill()
        one.process.wait()
        found = texts.read(remote)
        assert found["memcached_failures"] in (1, 2)
        assert 0 < found["memcached_hits"] < len(texts.expected)
        assert texts.read(remote)["memcached_hits"] > found["memcached_hits"]  # Its share went to the other one.


def drip(connection: socket.socket, _: bytes) -> None:
    """An answer in pieces, none of which comes too late."""
    for byte in b"VALUE x 0 3000\r\n" + bytes(3000) + b"\r\nEND\r\n":
        connection.sendall(bytes([byte]))
        time.sleep(0.01)


def flood(connection: socket.socket, _: bytes) -> None:
    """An answer that never ends."""
    connection.sendall(b"VALUE x 0 99999999999\r\n")
    while True:
        connection.sendall(bytes(1 << 16))


@pytest.mark.parametrize(
    "answer",
    [
        lambda connection, _: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        lambda connection, _: connection.sendall(b"VALUE x 0 nonsense\r\n\r\nEND\r\n"),
        lambda connection, _: connection.sendall(b"SERVER_ERROR out of memory\r\n"),
        lambda connection, _: connection.sendall(bytes(4000)),
        lambda connection, _: connection.close(),
        drip,
        flood,
    ],
)
def test_a_server_that_answers_rubbish_is_left_alone(
    texts: Texts, answer: Callable[[socket.socket, bytes], None]
) -> None:
    asked = []

    def behave(connection: socket.socket) -> None:
        while line := connection.recv(9999):
            asked.append(line)
            answer(connection, line)

    with (
        stranger(behave) as port,
        closing(Memcached([("127.0.0.1", port)], time.monotonic)) as remote,
    ):
        texts.read(remote)
        assert len(asked) in (1, 2)
        before = len(asked)
        texts.read(remote)
        assert len(asked) == before


def test_a_large_text_stays_here(one: Process) -> None:
    with at(one) as remote:
        remote.put(b"large", bytes(MOST + 1))
        remote.put(b"small", b"text")
        assert (remote.get(b"large"), remote.get(b"small")) == (None, b"text")
