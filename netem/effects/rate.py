"""Rate: bytes leave the sender one after the other, so many a second."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from netem.effects.base import Effect, Parcel, Stage, register
from netem.units import NANOSECONDS, parse_rate

SEGMENT = 1448
"""Bytes that come out together at the least: the payload of one TCP segment in a 1500-byte Ethernet frame."""

GRAIN = 0.005
"""Seconds of the rate that come out together at the most, on a link where a segment takes less."""


@register
@dataclass(frozen=True)
class Rate(Effect):
    """Let at most `rate` bytes a second through."""

    rate: float
    name: ClassVar[str] = "rate"
    arguments: ClassVar[str] = "RATE"

    def __post_init__(self) -> None:
        """Refuse a rate that is not above zero."""
        if not self.rate > 0:
            raise ValueError(f"a rate of {self.rate!r} bytes a second: expected more than 0")

    def begin(self) -> Stage:
        """A stage that cuts parcels into pieces and lets each leave when its last bit has."""
        piece_size = max(SEGMENT, int(self.rate * GRAIN))
        free = 0

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            nonlocal free
            rest: Parcel | None = parcel
            while rest is not None:
                piece, rest = rest.split(piece_size) if len(rest.content) > piece_size else (rest, None)
                if not piece.stuck:
                    free = max(free, piece.at) + round(len(piece.content) * NANOSECONDS / self.rate)
                    piece.hold(free)
                yield piece

        return stage

    @classmethod
    def parse(cls, rate: str) -> Rate:
        """`rate:1mbit`."""
        return cls(parse_rate(rate))
