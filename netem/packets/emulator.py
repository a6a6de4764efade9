"""The packet emulator: a loop between two ports that lets each packet out when the link says, and counts.

It is a process of its own, so that nothing the programs under test do makes it late but the machine being too busy;
how late it was is part of what it tells: of each packet, by how much it was let out after it was due, which it knows;
and by how much it may have waited until it was read, for only then its time on the link begins. Of that it knows only
what is the most: where the loop overslept, a packet may have come as it should have woken, or as it did.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import time
from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from netem.counter import Counter
from netem.effects import Parcel, Stage
from netem.link import Link
from netem.packets.channel import Channel
from netem.packets.devices import Port
from netem.packets.namespaces import wake_up_in_time
from netem.packets.segments import Delivery, SegmentCounter
from netem.packets.trains import cut, packets_in
from netem.timekeeping import PAUSE, percentile_99
from netem.units import NANOSECONDS, NEVER, nanoseconds

AT_ONCE = 32
"""Packets (or whole trains) read of one port before the other, and what is due, get their turn."""
LARGEST = 65536 + 64
"""Bytes of a packet or train with what comes before it."""
NAP = nanoseconds(PAUSE)
"""Nanoseconds the loop sleeps at the most: what it oversleeps it knows, but not when in its sleep a packet came."""
KEPT_DELAYS = 100_000
"""Lateness of the last packets that is kept, for its 99th percentile."""

_TRANSIENT = (errno.EIO, errno.EINVAL, errno.EAGAIN, errno.ENOBUFS, errno.ENETDOWN)
"""The errors of a device that cannot take a packet now, or a packet that an effect has damaged."""
_UNCHECKED = b"\0"
"""The first byte of a virtio header that promises nothing of the checksum: it is there, and to be looked at."""
_AT = attrgetter("at")


@dataclass(slots=True)
class PacketCounts:
    """Packets of one direction in one operation; a train counts as what it is cut into."""

    packets: int = 0
    dropped: int = 0
    """By an effect, a full queue of the link, or because the remote end could take no more."""


_Carried = tuple[bytes, memoryview, Delivery | None, int, int]
"""The companions of a parcel: its frame, the part in the parcel (from the IP header on), its meaning to the
counter, how many packets it is on the wire (more than one if it is a train), and how many nanoseconds late it was read.
A tuple, for there are a hundred thousand a second."""


@dataclass(slots=True)
class _Direction:
    up: bool
    source: Port
    target: Port
    stages: Sequence[Stage]
    whole: bool
    """True if trains pass as they are; else they are cut, for the stages to see each packet."""
    passed: PacketCounts = field(default_factory=PacketCounts)
    queue: deque[Parcel] = field(default_factory=deque)
    """By when they are due; those due at one time in the order in which they came."""


class Emulator:
    """One link between two ports."""

    def __init__(self, ports: tuple[Port, Port], link: Link) -> None:
        self._directions = (
            _Direction(True, ports[0], ports[1], link.packet_stages(up=True), link.trains),
            _Direction(False, ports[1], ports[0], link.packet_stages(up=False), link.trains),
        )
        self._segments = SegmentCounter(Counter())
        self._late: deque[int] = deque(maxlen=KEPT_DELAYS)
        """At the most: with the time for which it may have lain unread."""
        self._least_late: deque[int] = deque(maxlen=KEPT_DELAYS)
        """At the least: after it was due."""

    def run(self, control: Channel) -> None:
        """Emulate until the other end of `control` is gone; it answers what is asked there."""
        wake_up_in_time()
        ports = {direction.source.descriptor: direction for direction in self._directions}
        waiting = [*ports, control.fileno()]
        now = time.monotonic_ns
        looked = now()
        while True:
            due = min([self._deliver(direction, now()) for direction in self._directions])
            begun = now()
            # Not epoll, which in Python sleeps whole milliseconds.
            ready = select.select(waiting, [], [], 0)[0]
            since, looked = looked, begun  # what is there came after the last look, while we did something else
            if not ready:
                nap = max(0, min(NAP, due - begun))
                ready = select.select(waiting, [], [], nap / NANOSECONDS)[0]
                since = looked = min(now(), begun + nap)
            for descriptor in ready:
                direction = ports.get(descriptor)
                if direction is not None:
                    self._read(direction, since)
                elif not self._answer(control):
                    return

    def _read(self, direction: _Direction, since: int) -> None:
        """Read what is there, `since` that time at the earliest."""
        source, clock = direction.source, time.monotonic_ns
        left = AT_ONCE
        while left > 0:
            try:
                frame = os.read(source.descriptor, LARGEST)
            except BlockingIOError:
                return
            now = clock()
            packets = packets_in(frame, source.header)
            seen = self._segments.sent(frame, source.header, now, up=direction.up, packets=packets)
            direction.passed.packets += packets
            self._enter(direction, frame, seen, packets, now, now - since)
            left -= 1 if direction.whole else packets

    def _enter(
        self, direction: _Direction, frame: bytes, seen: Delivery | None, packets: int, now: int, waited: int
    ) -> None:
        cuts = packets > 1 and not direction.whole
        at, queue, stages = direction.source.header, direction.queue, direction.stages
        for each in cut(frame, at) if cuts else (frame,):
            packet = memoryview(each)[at:]
            carried: _Carried = each, packet, seen, 1 if cuts else packets, waited
            parcels: Iterable[Parcel] = (Parcel(packet, now, now, tag=carried),)
            for stage in stages:
                parcels = [after for parcel in parcels for after in stage(parcel)]
            if not parcels:
                direction.passed.dropped += carried[3]
            for parcel in parcels:
                if not queue or queue[-1].at <= parcel.at:
                    queue.append(parcel)
                else:
                    insort(queue, parcel, key=_AT)

    def _deliver(self, direction: _Direction, now: int) -> int:
        """Let out what is due; when the next is."""
        queue, target, clock = direction.queue, direction.target, time.monotonic_ns
        late, least_late = self._late, self._least_late
        told: Delivery | None = None
        while queue and queue[0].at <= now:
            parcel = queue.popleft()
            carried: _Carried = parcel.tag
            frame, packet, seen, packets, waited = carried
            try:
                if parcel.content is packet:
                    # Counted before it is written: who has read it finds it counted.
                    if seen is not told and seen is not None:
                        seen.delivered(clock())
                        told = seen
                    os.write(target.descriptor, frame)
                else:  # damaged: the remote kernel is to find that out, and drops it
                    os.writev(target.descriptor, [_UNCHECKED + frame[1 : target.header], parcel.content])
            except OSError as error:
                if error.errno not in _TRANSIENT:
                    raise
                direction.passed.dropped += packets
            least = clock() - parcel.at
            least_late.append(least)
            late.append(least + waited)
        return queue[0].at if queue else NEVER

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
        with contextlib.suppress(ConnectionError):  # who asked is gone: the next turn of the loop finds out
            control.send(answer)
        return True

    def _on_counts(self) -> Any:
        up, down = (direction.passed for direction in self._directions)
        return replace(self._segments.counter.counts(), not_tcp=self._segments.not_tcp), up, down

    def _on_lateness(self) -> float:
        return percentile_99(self._late)

    def _on_least_lateness(self) -> float:
        return percentile_99(self._least_late)

    def _on_take(self) -> Any:
        taken = self._on_counts()
        self._segments.begin(Counter())
        for direction in self._directions:
            direction.passed = PacketCounts()
        self._late.clear()
        self._least_late.clear()
        return taken

    def _on_change(self, link: Link) -> None:
        now = time.monotonic_ns()
        for direction in self._directions:
            direction.stages, direction.whole = link.packet_stages(up=direction.up), link.trains
            queue = direction.queue
            direction.queue = deque(parcel for parcel in queue if not parcel.stuck)
            for parcel in queue:
                if parcel.stuck:
                    frame, _, seen, packets, waited = parcel.tag
                    self._enter(direction, frame, seen, packets, now, waited)
