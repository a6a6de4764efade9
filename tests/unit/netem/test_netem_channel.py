"""netem.packets.channel."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from netem.packets.channel import Channel


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    here, there = Channel.pair()
    yield here, there
    here.close()
    there.close()


def test_messages_of_any_size_in_order(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    sizes = (0, 1, 3_000_000, 5)

    def send() -> None:
        for size in sizes:
            here.send(b"x" * size)

    thread = threading.Thread(target=send)
    thread.start()
    assert [len(there.receive()[0]) for _ in sizes] == list(sizes)
    thread.join()


def test_half_a_message_and_its_descriptors() -> None:
    one, other = socket.socketpair()
    channel = Channel(other)
    reading, writing = os.pipe()
    socket.send_fds(one, [b"\x05\0\0\0\x01\0\0\0ab"], [writing])
    os.close(writing)
    one.close()
    with pytest.raises(EOFError):
        channel.receive()
    assert os.read(reading, 1) == b""  # the copy was closed
    os.close(reading)
    channel.close()
