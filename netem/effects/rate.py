"""Rate: bytes leave the sender one after the other, at a limited number of bytes a second.

On a stream, the bytes wait in the sender's buffer. A link of packets has a queue and drops packets while it is full.
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
"""The largest piece of a stream that is delivered at once, in seconds of the rate. A piece has at least one segment."""

QUEUE_SECONDS = 1.0
"""The default size of the queue of a link of packets, in seconds of the rate: about one round trip of a long link."""

QUEUE_BYTES = 64 * 1024
"""The least default size of the queue of a link of packets, in bytes."""


@register
@dataclass(frozen=True)
class Rate(Effect):
    """Let at most `rate` bytes a second through."""

    rate: float
    queue: int | None = None
    """Bytes in the queue of a link of packets. None means `QUEUE_SECONDS` of the rate, but at least `QUEUE_BYTES`."""
    name: ClassVar[str] = "rate"
    arguments: ClassVar[str] = "RATE[:BYTES]"
    splits_trains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a rate that is not positive and finite, and a negative queue."""
        if not 0 < self.rate < math.inf:
            raise ValueError(f"a rate of {self.rate!r} bytes a second: expected more than 0, and an end")
        if self.queue is not None and self.queue < 0:
            raise ValueError(f"a queue of {self.queue} bytes: expected 0 or more")

    def begin(self) -> Stage:
        """Return a stage that cuts parcels into pieces, each of which leaves when its last bit is on the link."""
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
        """Return a stage in which a packet leaves when its last bit is on the link, or is dropped by a full queue."""
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
        """Refuse a queue: on a stream, bytes wait in the sender's buffer."""
        if self.queue is not None:
            raise ValueError(
                "the effect rate with a queue is of packets, and here are streams of bytes: use `netem run`"
            )

    @classmethod
    def parse(cls, rate: str, queue: str | None = None) -> Rate:
        """Return the effect of `rate:1mbit` or `rate:1mbit:64KiB`."""
        return cls(parse_rate(rate), None if queue is None else parse_size(queue))
