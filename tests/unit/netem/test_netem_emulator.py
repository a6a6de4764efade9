"""netem.packets.emulator, in real time and asserted from below alone; channel, devices, netlink."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from frames import frame

from netem.effects import Blackhole, Stall
from netem.link import Link
from netem.packets import netlink
from netem.packets.channel import Channel
from netem.packets.devices import Port, check_setting
from netem.packets.emulator import Emulator


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


def test_a_setting_of_the_network() -> None:
    check_setting("net.ipv4.conf.all.rp_filter")


@pytest.mark.parametrize(
    "name", ["vm.swappiness", "kernel.pid_max", "net", "netx.a", "net./a", "net...vm.swappiness", ""]
)
def test_a_setting_of_the_whole_machine_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name!r} is not a network setting"):
        check_setting(name)


@pytest.mark.parametrize(("error", "found"), [(0, 0), (-17, 17)])
def test_an_answer_to_us(error: int, found: int) -> None:
    assert netlink.acknowledged(struct.pack("=IHHIIi", 36, 2, 0, 7, 0, error) + bytes(16), 7) == found


@pytest.mark.parametrize(("kind", "number"), [(2, 8), (16, 7)])
def test_an_answer_to_another_or_of_another_kind(kind: int, number: int) -> None:
    assert netlink.acknowledged(struct.pack("=IHHIIi", 36, kind, 0, number, 0, -17), 7) is None


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
