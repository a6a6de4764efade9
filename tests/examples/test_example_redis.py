"""A Redis client of ten lines, and a loop over keys that one command, or one pipeline, does as well."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from netem.budget import TooManyRoundTrips, round_trips
from netem.watched import Watched

pytestmark = pytest.mark.sockets

KEYS = [f"user:{number}" for number in range(5)]


class Redis:
    """Sends commands, all of them before it reads the first answer."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._answers = self._socket.makefile("rb")

    def ask(self, *commands: list[str]) -> list[str]:
        for words in commands:
            said = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
            self._socket.sendall(f"*{len(words)}\r\n{said}".encode())
        return [self._answers.read(int(self._answers.readline()[1:]) + 2).decode().strip() for _ in commands]

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


class Store(socketserver.StreamRequestHandler):
    """GET gives the key in capitals."""

    disable_nagle_algorithm = True

    def handle(self) -> None:
        while count := self.rfile.readline()[1:]:
            words = [self.rfile.read(int(self.rfile.readline()[1:]) + 2).strip() for _ in range(int(count))]
            self.wfile.write(b"$%d\r\n%s\r\n" % (len(words[1]), words[1].upper()))


@pytest.fixture
def redis() -> Iterator[Redis]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Store) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        client = Redis(server.server_address[1])
        yield client
        client.close()
        server.shutdown()
        thread.join()


def one_by_one(redis: Redis) -> list[str]:
    return [redis.ask(["GET", key])[0] for key in KEYS]  # N+1


def pipelined(redis: Redis) -> list[str]:
    return redis.ask(*(["GET", key] for key in KEYS))


def same_again(redis: Redis) -> list[str]:
    return [redis.ask(["GET", "settings"])[0] for _ in KEYS]  # 5 times


def line_of(text: str) -> int:
    """The line of this file that ends so."""
    with open(__file__) as source:
        return 1 + [line.endswith(f"  {text}\n") for line in source].index(True)


def test_one_by_one_is_too_many(real_network: Watched, redis: Redis) -> None:
    with pytest.raises(TooManyRoundTrips) as caught, round_trips(real_network, at_most=1):
        one_by_one(redis)
    said = str(caught.value)
    assert "took 5 round trips" in said
    assert "5 round trips were made one after the other from" in said
    assert f"test_example_redis.py:{line_of('# N+1')} in " in said
    assert "GET user:4" in said


def test_the_same_key_again_and_again(real_network: Watched, redis: Redis) -> None:
    with pytest.raises(TooManyRoundTrips) as caught, round_trips(real_network, at_most=1):
        same_again(redis)
    said = str(caught.value)
    assert "the same 27 bytes were sent 5 times from" in said
    assert f"test_example_redis.py:{line_of('# 5 times')} in " in said


@pytest.mark.max_round_trips(1)
def test_a_pipeline_is_one(real_network: Watched, redis: Redis) -> None:
    real_network.take()  # the connection is open
    assert pipelined(redis) == [key.upper() for key in KEYS]
