"""The packet emulator: a loop between two ports that lets each packet out after its time on the link, and counts.

It is a process of its own, so that the programs under test make it late only if the machine is too busy. It measures
how late it was. For each packet it knows the time from its due time to its output. It knows only the most that a packet
may have waited before it was read, when its time on the link begins: if the loop overslept, the packet may have come at
any time in between.
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
"""The most packets (or whole trains) that are read from one port before the other port, and due packets, are
processed."""
LARGEST = 65536 + 64
"""The most bytes of a packet or train with the headers before it."""
NAP = nanoseconds(PAUSE)
"""The longest sleep of the loop in nanoseconds. It is short because the time of arrival within a sleep is unknown."""
KEPT_DELAYS = 100_000
"""The number of most recent packets whose lateness is stored, for its 99th percentile."""

_TRANSIENT = (errno.EIO, errno.EINVAL, errno.EAGAIN, errno.ENOBUFS, errno.ENETDOWN)
"""The errors of a device that cannot accept a packet at the moment, or that refuses a packet that an effect has
damaged."""
_UNCHECKED = b"\0"
"""The first byte of a virtio header after which the receiver checks the packet's checksum."""
_AT = attrgetter("at")


@dataclass(slots=True)
class PacketCounts:
    """The packets of one direction in one operation. A train counts as the number of its packets on the wire."""

    packets: int = 0
    dropped: int = 0
    """Packets that were dropped by an effect, by a full queue of the link, or because the remote end could not accept
    more."""


_Carried = tuple[bytes, memoryview, Delivery | None, int, int]
"""The tag of a parcel: its frame, the part of it in the parcel (from the IP header on), its delivery for the counter,
the number of packets that it is on the wire (more than one for a train), and the nanoseconds that it may have waited
unread. It is a tuple, because there are a hundred thousand a second."""


@dataclass(slots=True)
class _Direction:
    up: bool
    source: Port
    target: Port
    stages: Sequence[Stage]
    whole: bool
    """True if trains pass unchanged. Otherwise they are cut, so that the stages see each packet."""
    passed: PacketCounts = field(default_factory=PacketCounts)
    queue: deque[Parcel] = field(default_factory=deque)
    """The parcels by due time, and in order of arrival if their due times are equal."""


class Emulator:
    """One link between two ports."""

    def __init__(self, ports: tuple[Port, Port], link: Link) -> None:
        self._directions = (
            _Direction(True, ports[0], ports[1], link.packet_stages(up=True), link.trains),
            _Direction(False, ports[1], ports[0], link.packet_stages(up=False), link.trains),
        )
        self._segments = SegmentCounter(Counter())
        self._late: deque[int] = deque(maxlen=KEPT_DELAYS)
        """For each packet, the most nanoseconds by which it was late, including the time that it may have waited
        unread."""
        self._least_late: deque[int] = deque(maxlen=KEPT_DELAYS)
        """For each packet, the least number of nanoseconds by which it was late: from its due time to its output."""

    def run(self, control: Channel) -> None:
        """Emulate the link and answer requests on `control`, until its other end is closed."""
        wake_up_in_time()
        ports = {direction.source.descriptor: direction for direction in self._directions}
        waiting = [*ports, control.fileno()]
        now = time.monotonic_ns
        looked = now()
        while True:
            due = min([self._deliver(direction, now()) for direction in self._directions])
            begun = now()
            # Not epoll, which sleeps whole milliseconds in Python.
            ready = select.select(waiting, [], [], 0)[0]
            since, looked = looked, begun  # waiting packets came after the last check, during other work
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
        """Read the waiting packets, which have arrived after the time `since`."""
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
        """Deliver the packets that are due. Return the due time of the next packet; `NEVER` if there is none."""
        queue, target, clock = direction.queue, direction.target, time.monotonic_ns
        late, least_late = self._late, self._least_late
        told: Delivery | None = None
        while queue and queue[0].at <= now:
            parcel = queue.popleft()
            carried: _Carried = parcel.tag
            frame, packet, seen, packets, waited = carried
            try:
                if parcel.content is packet:
                    # Count before writing, so that a reader of the packet finds it counted.
                    if seen is not told and seen is not None:
                        seen.delivered(clock())
                        told = seen
                    os.write(target.descriptor, frame)
                else:  # damaged: the remote kernel checks it and drops it
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
        """Answer one request. Return False if the other end is closed."""
        try:
            (question, *arguments), _ = control.receive()
        except EOFError:
            return False
        try:
            answer = getattr(self, f"_on_{question}")(*arguments)
        except Exception as error:  # an error of the request, which does not stop the link
            answer = error
        with contextlib.suppress(ConnectionError):  # the other end is closed, which the next turn of the loop notices
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
