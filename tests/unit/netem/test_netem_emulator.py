"""netem.packets.emulator between two pairs of sockets instead of devices: real time, asserted from below alone."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from frames import ACK, SYN, frame, train

from netem.effects import Blackhole, Corrupt, Duplicate, Effect, Jitter, Loss, Rate, Stall
from netem.link import Link
from netem.packets.channel import Channel
from netem.packets.devices import Port
from netem.packets.emulator import Emulator
from netem.packets.trains import cut

PATIENCE = 30.0
"""Seconds after which a test is stuck."""
HEADER = 10
PROMISED = b"\1"
"""The first byte of a header that says: the checksum was not made yet."""


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


@over()
def test_packets_pass_and_are_counted(emulated: Emulated) -> None:
    opening, answer = frame(1, flags=SYN), frame(5, flags=SYN | ACK, up=False)
    emulated.client.send(opening)
    assert emulated.server.recv(2000) == opening
    emulated.server.send(answer)
    assert emulated.client.recv(2000) == answer
    emulated.client.send(frame(2, 100))
    assert emulated.server.recv(2000) == frame(2, 100)
    counts, up, down = emulated.control.ask("take")[0]
    assert (counts.connections, counts.bytes_up, counts.rounds) == (1, 100, 1)
    assert (up.packets, down.packets, up.dropped, down.dropped) == (2, 1, 0, 0)
    assert emulated.control.ask("counts")[0][1].packets == 0
    for question in ("lateness", "least_lateness"):
        assert emulated.control.ask(question)[0] == (0, 0, 0)


@over(down=[Duplicate(1)])
def test_what_is_no_tcp_passes_too(emulated: Emulated) -> None:
    emulated.server.send(b"anything, longer than a header")
    assert [emulated.client.recv(2000) for _ in range(2)] == [b"anything, longer than a header"] * 2
    assert [emulated.control.ask("take")[0][0].not_tcp for _ in range(2)] == [1, 0]


@over(up=[Loss(1)])
def test_what_is_lost_is_counted_as_dropped(emulated: Emulated) -> None:
    emulated.client.send(frame(1, flags=SYN))
    emulated.server.send(frame(9, up=False))
    emulated.client.recv(2000)
    counts, up, down = emulated.control.ask("counts")[0]
    assert (counts.connections, up.packets, up.dropped, down.dropped) == (1, 1, 1, 0)


@over(up=[Corrupt(1)])
def test_a_damaged_packet_promises_nothing_of_its_checksum_and_is_not_delivered(emulated: Emulated) -> None:
    for made in (frame(1, flags=SYN), frame(2, 100)):
        emulated.client.send(PROMISED + made[1:])
    assert emulated.server.recv(2000)[:1] == PROMISED  # headers alone: nothing to damage
    damaged = emulated.server.recv(2000)
    assert damaged[:1] == b"\0"
    assert damaged != frame(2, 100)
    (counts, _, _), _ = emulated.control.ask("counts")
    assert [(message.size, message.delivered) for message in counts.messages] == [(100, None)]


PACKETS = 20
TRAIN = train(1, PACKETS * 1000, 1000)


@over()
def test_a_train_passes_whole_and_is_counted_as_its_packets(emulated: Emulated) -> None:
    emulated.client.send(TRAIN)
    assert emulated.server.recv(70_000) == TRAIN
    assert emulated.control.ask("counts")[0][1].packets == PACKETS


@pytest.mark.parametrize("running", [False, True], ids=["from the start", "switched to"])
@pytest.mark.parametrize(
    "effect", [Loss(0.5, seed=1), Duplicate(0.5), Corrupt(0.5), Jitter(0.001, ordered=False), Rate(10**9)], ids=repr
)
def test_an_effect_on_packets_sees_each_of_a_train(effect: Effect, running: bool) -> None:
    link = Link(0.002, up=[effect])
    emulated = Emulated(Link(0.002) if running else link)
    try:
        if running:
            emulated.client.send(TRAIN)
            assert emulated.server.recv(70_000) == TRAIN
            emulated.control.ask("change", link)
            emulated.control.ask("take")
        emulated.client.send(frame(1, flags=SYN))
        emulated.client.send(TRAIN)
        emulated.server.send(train(5, 2000, 1000))  # what goes the other way is cut, too, and passes
        assert [len(emulated.client.recv(70_000)) for _ in range(2)] == [1050, 1050]
        emulated.control.ask("change", Link(0.05))
        emulated.client.send(TRAIN)  # comes last
        whole = [frame(1, flags=SYN), *cut(TRAIN, HEADER)]
        found = []
        while (got := emulated.server.recv(70_000)) != TRAIN:
            found.append(got)
        _, up, _ = emulated.control.ask("counts")[0]
        assert up.packets == 1 + 2 * PACKETS
        changed = [got for got in found if got not in whole]
        assert len({*found} - {*changed}) + len(changed) + up.dropped == len(whole)
        many = range(PACKETS // 5, PACKETS - PACKETS // 5)
        if isinstance(effect, Loss):
            assert up.dropped in many
        elif isinstance(effect, Duplicate):
            assert len(found) - len(whole) in many
        elif isinstance(effect, Corrupt):
            assert len(changed) in many
        elif isinstance(effect, Jitter):
            assert found != whole
        else:
            assert found == whole
    finally:
        emulated.close()


@over(up=[Stall(0)])
def test_a_train_that_was_held_is_cut_where_the_new_link_sees_packets(emulated: Emulated) -> None:
    emulated.client.send(TRAIN)
    while emulated.control.ask("counts")[0][1].packets != PACKETS:
        pass
    emulated.control.ask("change", Link(0.002, up=[Loss(0)]))
    assert [emulated.server.recv(70_000) for _ in range(PACKETS)] == cut(TRAIN, HEADER)


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
    late: float = emulated.control.ask(question)[0][2] / 1e9
    return late


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
