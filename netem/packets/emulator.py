"""The packet emulator: a loop between two ports that lets each packet out when the link says, and counts.

It is a process of its own, so that nothing the programs under test do makes it late but the machine being too busy;
how late it was is part of what it tells.
"""

from __future__ import annotations

import errno
import heapq
import os
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from netem.counter import Counter
from netem.effects import Parcel, Stage
from netem.lateness import quantile
from netem.link import Link
from netem.packets.channel import Channel
from netem.packets.devices import HEADER_FIRST_BYTE_PLAIN, Port, packets_in
from netem.packets.namespaces import wake_up_in_time
from netem.packets.segments import Seen, SegmentCounter
from netem.units import NANOSECONDS, NEVER

AT_ONCE = 32
"""Packets read of one port before the other, and what is due, get their turn."""
LARGEST = 65536 + 64
"""Bytes of a packet or train with what comes before it."""
NAP = 200_000_000
"""Nanoseconds the loop sleeps at the most."""
KEPT_DELAYS = 100_000
"""Lateness of the last packets that is kept, for its median and 99th percentile."""

_TRANSIENT = (errno.EIO, errno.EINVAL, errno.EAGAIN, errno.ENOBUFS, errno.ENETDOWN)
"""What a device says of a packet that it cannot take now, or that an effect has damaged."""


@dataclass(slots=True)
class Passed:
    """Packets of one direction in one operation; a train counts as what it is cut into."""

    packets: int = 0
    dropped: int = 0
    """By an effect, a full queue of the link, or because the far end could take no more."""


@dataclass(slots=True)
class _Carried:
    """What goes with the bytes of a packet: what stood before them, and what they mean to the counter."""

    header: bytes
    packet: memoryview
    seen: Seen | None
    packets: int


@dataclass(slots=True)
class _Direction:
    up: bool
    source: Port
    target: Port
    stages: Sequence[Stage]
    passed: Passed = field(default_factory=Passed)
    queue: list[tuple[int, int, Parcel]] = field(default_factory=list)


class Emulator:
    """One link between two ports."""

    def __init__(self, ports: tuple[Port, Port], link: Link) -> None:
        self._directions = (
            _Direction(True, ports[0], ports[1], link.packet_stages(up=True)),
            _Direction(False, ports[1], ports[0], link.packet_stages(up=False)),
        )
        self._segments = SegmentCounter(Counter())
        self._order = 0
        self._late: list[int] = []

    def run(self, control: Channel) -> None:
        """Emulate until the other end of `control` is gone; it answers what is asked there.

        Raises:
            OSError: a port failed.
        """
        wake_up_in_time()
        ports = {direction.source.descriptor: direction for direction in self._directions}
        waiting = [*ports, control.fileno()]
        now = time.monotonic_ns
        while True:
            due = min([self._deliver(direction, now()) for direction in self._directions])
            nap = min(NAP, due - now()) if due < NEVER else NAP
            for descriptor in select.select(waiting, [], [], max(0, nap) / NANOSECONDS)[0]:
                direction = ports.get(descriptor)
                if direction is not None:
                    self._read(direction, now())
                elif not self._answer(control):
                    return

    def _read(self, direction: _Direction, now: int) -> None:
        source = direction.source
        for _ in range(AT_ONCE):
            try:
                frame = os.read(source.descriptor, LARGEST)
            except BlockingIOError:
                return
            seen = self._segments.sent(frame, source.header, now, up=direction.up)
            header, packet = frame[: source.header], memoryview(frame)[source.header :]
            carried = _Carried(header, packet, seen, packets_in(frame, source.header))
            direction.passed.packets += carried.packets
            self._enter(direction, carried, now)

    def _enter(self, direction: _Direction, carried: _Carried, now: int) -> None:
        parcels = [Parcel(carried.packet, now, now, tag=carried)]
        for stage in direction.stages:
            parcels = [after for parcel in parcels for after in stage(parcel)]
        if not parcels:
            direction.passed.dropped += carried.packets
        for parcel in parcels:
            self._order += 1
            heapq.heappush(direction.queue, (parcel.at, self._order, parcel))

    def _deliver(self, direction: _Direction, now: int) -> int:
        """Let out what is due; when the next is."""
        queue = direction.queue
        while queue and queue[0][0] <= now:
            at, _, parcel = heapq.heappop(queue)
            carried: _Carried = parcel.tag
            whole = parcel.content is carried.packet
            # Counted before it is written: who has read it finds it counted. What is damaged, the far kernel drops.
            if carried.seen is not None and whole:
                carried.seen.delivered(now)
            header = carried.header if whole else HEADER_FIRST_BYTE_PLAIN + carried.header[1:]
            try:
                os.writev(direction.target.descriptor, [header, parcel.content])
            except OSError as error:
                if error.errno not in _TRANSIENT:
                    raise
                direction.passed.dropped += carried.packets
            self._late.append(now - at)
            if len(self._late) >= 2 * KEPT_DELAYS:
                del self._late[:KEPT_DELAYS]
        return queue[0][0] if queue else NEVER

    def _answer(self, control: Channel) -> bool:
        """Do what is asked; whether to go on."""
        try:
            (question, *arguments), _ = control.receive()
        except EOFError:
            return False
        try:
            answer = getattr(self, f"_on_{question}")(*arguments)
        except Exception as error:  # of the question; the link goes on
            answer = error
        control.send(answer)
        return True

    def _on_counts(self) -> Any:
        up, down = (direction.passed for direction in self._directions)
        return self._segments.counter.counts(), up, down

    def _on_lateness(self) -> tuple[int, int, int]:
        late = sorted(self._late)
        return (quantile(late, 50), quantile(late, 99), late[-1]) if late else (0, 0, 0)

    def _on_take(self) -> Any:
        taken = self._on_counts()
        self._segments.begin(Counter())
        for direction in self._directions:
            direction.passed = Passed()
        self._late.clear()
        return taken

    def _on_change(self, link: Link) -> None:
        now = time.monotonic_ns()
        for direction in self._directions:
            direction.stages = link.packet_stages(up=direction.up)
            queue = sorted(direction.queue, key=lambda entry: entry[:2])  # which is a heap, too
            direction.queue = [entry for entry in queue if not entry[2].stuck]
            for _, _, parcel in queue:
                if parcel.stuck:
                    self._enter(direction, parcel.tag, now)
