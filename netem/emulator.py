"""The packet emulator: a loop between two ports that lets each packet out when the link says, and counts.

It is a process of its own, so that nothing the programs under test do makes it late but the machine being too busy;
how late it was is part of what it tells.
"""

from __future__ import annotations

import ctypes
import errno
import heapq
import os
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from netem.channel import Channel
from netem.counter import Counter
from netem.devices import Port
from netem.effects import Parcel, Stage
from netem.link import Link
from netem.segments import Seen, SegmentCounter
from netem.units import NANOSECONDS, NEVER

AT_ONCE = 32
"""Packets read of one port before the other, and what is due, get their turn."""
LARGEST = 65536 + 64
"""Bytes of a packet or train with what comes before it."""
NAP = 200_000_000
"""Nanoseconds the loop sleeps at the most."""
KEPT_DELAYS = 100_000
"""Lateness of the last packets that is kept, for its median and 99th percentile."""

_TIMER_SLACK = 29
_TRANSIENT = (errno.EIO, errno.EINVAL, errno.EAGAIN, errno.ENOBUFS, errno.ENETDOWN)


@dataclass(slots=True)
class Passed:
    """Packets of one direction in one operation."""

    packets: int = 0
    dropped: int = 0
    """By an effect, a full queue of the link, or because the far end could take no more."""


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
        ctypes.CDLL(None).prctl(_TIMER_SLACK, 1, 0, 0, 0)
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
        source, up = direction.source, direction.up
        for _ in range(AT_ONCE):
            try:
                packet = os.read(source.descriptor, LARGEST)
            except BlockingIOError:
                return
            seen = self._segments.sent(packet, source.header, now, up=up)
            direction.passed.packets += 1
            parcels = [Parcel(packet, now, now, tag=seen)]
            for stage in direction.stages:
                parcels = [after for parcel in parcels for after in stage(parcel)]
            if not parcels:
                direction.passed.dropped += 1
            for parcel in parcels:
                self._order += 1
                heapq.heappush(direction.queue, (parcel.at, self._order, parcel))

    def _deliver(self, direction: _Direction, now: int) -> int:
        """Let out what is due; when the next is."""
        queue = direction.queue
        while queue and queue[0][0] <= now:
            at, _, parcel = heapq.heappop(queue)
            seen: Seen | None = parcel.tag
            # Counted before it is written: who has read it finds it counted.
            if seen is not None:
                self._segments.delivered(seen, now)
            try:
                os.write(direction.target.descriptor, parcel.data)
            except OSError as error:
                if error.errno not in _TRANSIENT:
                    raise
                direction.passed.dropped += 1
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
        control.send(getattr(self, f"_on_{question}")(*arguments))
        return True

    def _on_counts(self) -> Any:
        counts = self._segments.counter.counts()
        up, down = (direction.passed for direction in self._directions)
        late = sorted(self._late)
        return counts, up, down, (late[len(late) // 2], late[len(late) * 99 // 100], late[-1]) if late else (0, 0, 0)

    def _on_take(self) -> Any:
        taken = self._on_counts()
        self._segments.begin(Counter())
        for direction in self._directions:
            direction.passed = Passed()
        self._late.clear()
        return taken

    def _on_change(self, link: Link) -> Any:
        for direction in self._directions:
            direction.stages = link.packet_stages(up=direction.up)
