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


def test_who_is_gone_before_he_read_his_answer_is_gone(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    here.send("an answer")
    there.close()
    with pytest.raises(EOFError, match="gone"):
        here.receive()


def test_nobody_there(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    there.close()
    with pytest.raises(EOFError, match="gone"):
        here.ask("question")
    with pytest.raises(EOFError, match="gone"):
        here.receive()


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
