"""Rate: bytes leave the sender one after the other, so many a second.

On a stream they wait in the sender's buffer. A link of packets has a queue before it, and drops what finds it full.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from netem.effects.base import Effect, Parcel, Stage, register
from netem.tcp_model import SEGMENT
from netem.units import NANOSECONDS, parse_rate, parse_size

GRAIN = 0.005
"""Seconds of the rate that come out together at the most, on a link where a segment takes less; else a segment."""

QUEUE_SECONDS = 1.0
"""Seconds of the rate that may wait before a link of packets: about one round trip of a long one."""

QUEUE_BYTES = 64 * 1024
"""Bytes that may wait at the least."""


@register
@dataclass(frozen=True)
class Rate(Effect):
    """Let at most `rate` bytes a second through."""

    rate: float
    queue: int | None = None
    """Bytes that may wait before a link of packets; None: `QUEUE_SECONDS` of the rate, or `QUEUE_BYTES` if that is
    more."""
    name: ClassVar[str] = "rate"
    arguments: ClassVar[str] = "RATE[:BYTES]"
    splits_trains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a rate that is not above zero or has no end, and a queue below."""
        if not 0 < self.rate < math.inf:
            raise ValueError(f"a rate of {self.rate!r} bytes a second: expected more than 0, and an end")
        if self.queue is not None and self.queue < 0:
            raise ValueError(f"a queue of {self.queue} bytes: expected 0 or more")

    def begin(self) -> Stage:
        """A stage that cuts parcels into pieces and lets each leave when its last bit has."""
        piece_size = max(SEGMENT, int(self.rate * GRAIN))
        free = 0

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            nonlocal free
            for piece in parcel.pieces(piece_size):
                if not piece.stuck:
                    free = max(free, piece.at) + round(len(piece.content) * NANOSECONDS / self.rate)
                    piece.hold(free)
                yield piece

        return stage

    def begin_packets(self) -> Stage:
        """A stage that lets each packet leave when its last bit has, and drops those that find the queue full."""
        per_byte = NANOSECONDS / self.rate
        longest = (max(QUEUE_SECONDS * self.rate, QUEUE_BYTES) if self.queue is None else self.queue) * per_byte
        free = 0

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            nonlocal free
            if parcel.stuck:
                return (parcel,)
            if free - parcel.at > longest:
                return ()
            free = max(free, parcel.at) + round(len(parcel.content) * per_byte)
            parcel.hold(free)
            return (parcel,)

        return stage

    def check_streams(self) -> None:
        """A stream's queue is its sender's buffer."""
        if self.queue is not None:
            raise ValueError(
                "the effect rate with a queue is of packets, and here are streams of bytes: use `netem run`"
            )

    @classmethod
    def parse(cls, rate: str, queue: str | None = None) -> Rate:
        """`rate:1mbit`, `rate:1mbit:64KiB`."""
        return cls(parse_rate(rate), None if queue is None else parse_size(queue))
