"""netem.packets.emulator between two pairs of sockets instead of devices: real time, asserted from below alone."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from frames import frame

from netem.effects import Blackhole, Stall
from netem.link import Link
from netem.packets.channel import Channel
from netem.packets.devices import Port
from netem.packets.emulator import Emulator

PATIENCE = 30.0
"""Seconds after which a test is stuck."""
HEADER = 10


class Emulated:
    """An emulator on a thread, and the far ends of its ports."""

    def __init__(self, link: Link) -> None:
        self.client, client = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.server, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for end in (client, server):
            end.setblocking(False)
        for end in (self.client, self.server):
            end.settimeout(PATIENCE)
        self._ports = (client, server)
        self.control, there = Channel.pair()
        emulator = Emulator((Port(client.fileno(), HEADER), Port(server.fileno(), HEADER)), link)
        self._thread = threading.Thread(target=emulator.run, args=(there,))
        self._thread.start()
        self._there = there

    def close(self) -> None:
        self.control.close()
        self._thread.join()
        for end in (*self._ports, self.client, self.server):
            end.close()
        self._there.close()


@pytest.fixture
def emulated(request: pytest.FixtureRequest) -> Iterator[Emulated]:
    made = Emulated(request.param)
    yield made
    made.close()


def over(*, rtt: float = 0.002, **options: object) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("emulated", [Link(rtt, **options)], indirect=True, ids=[""])  # type: ignore[arg-type]


@over(up=[Stall(0)], down=[Blackhole()])
def test_a_change_sends_what_was_held_and_not_what_is_lost(emulated: Emulated) -> None:
    for number in range(3):
        emulated.client.send(frame(number, 10))
        emulated.server.send(frame(number, 10, up=False))
    while True:
        _, up, down = emulated.control.ask("counts")[0]
        if (up.packets, down.packets, down.dropped) == (3, 3, 3):
            break
    emulated.control.ask("change", Link(0.002))
    assert [emulated.server.recv(2000) for _ in range(3)] == [frame(number, 10) for number in range(3)]
    emulated.server.send(frame(7, up=False))
    assert emulated.client.recv(2000) == frame(7, up=False)


@over()
def test_a_question_that_has_no_answer_ends_no_link(emulated: Emulated) -> None:
    for question in (("change", None), ("no such",)):
        with pytest.raises(AttributeError):
            emulated.control.ask(*question)
    emulated.client.send(frame(7))
    assert emulated.server.recv(2000) == frame(7)


@over()
def test_who_asks_and_is_gone_ends_the_link_as_who_asks_nothing(emulated: Emulated) -> None:
    for _ in range(3):
        emulated.control.send(("counts",))
    emulated.control.close()
    emulated._thread.join(PATIENCE)
    assert not emulated._thread.is_alive()


LATE = 0.05
"""Seconds that the emulator is made late by."""


def greatest(emulated: Emulated, question: str = "lateness") -> float:
    late: float = emulated.control.ask(question)[0]
    return late / 1e9


@over()
def test_what_waits_unread_while_the_emulator_does_something_else_is_late(
    emulated: Emulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, sent = threading.Event(), threading.Event()

    def be_busy(_: Emulator) -> None:
        begun.set()
        sent.wait(PATIENCE)
        time.sleep(LATE)

    monkeypatch.setattr(Emulator, "_on_busy", be_busy, raising=False)
    emulated.control.send(("busy",))
    begun.wait(PATIENCE)
    emulated.client.send(frame(1, 10))
    sent.set()
    emulated.control.receive()
    emulated.server.recv(2000)
    assert greatest(emulated) >= LATE
    assert greatest(emulated) - greatest(emulated, "least_lateness") >= LATE  # what it cannot know is not in this


@over(rtt=0, up=[Stall(0)])
def test_of_those_due_at_once_each_is_late_by_the_writes_before_it(
    emulated: Emulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def slowly(descriptor: int, content: bytes) -> int:
        time.sleep(LATE)
        return write(descriptor, content)

    for number in range(3):
        emulated.client.send(frame(number, 10))
    while emulated.control.ask("counts")[0][1].packets < 3:
        pass
    monkeypatch.setattr(os, "write", slowly)
    emulated.control.ask("change", Link(0))
    for _ in range(3):
        emulated.server.recv(2000)
    assert greatest(emulated) >= 3 * LATE
    assert greatest(emulated, "least_lateness") >= 3 * LATE
