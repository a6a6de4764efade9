"""Corrupt: some packets arrive with a bit changed.

On a link of packets the far kernel finds the checksum wrong and drops it: a loss that costs bandwidth. On a stream the
change reaches the program, as after a broken router or a faulty memory: so a protocol's own checks are tested.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from netem.effects.base import Effect, Parcel, Stage, register
from netem.units import parse_share


@register
@dataclass(frozen=True)
class Corrupt(Effect):
    """Change one bit of a packet, or of what was sent at once, with the probability `share`."""

    share: float
    seed: int = 0
    """The same seed, the same bits."""
    name: ClassVar[str] = "corrupt"
    arguments: ClassVar[str] = "PERCENT"
    splits_trains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        if not 0 <= self.share <= 1:
            raise ValueError(f"corruption of a share of {self.share!r}: expected 0 to 1")

    def begin(self) -> Stage:
        """A stage that changes a bit anywhere."""
        chance = random.Random(self.seed)

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            if parcel.data and chance.random() < self.share:
                parcel.data = _changed(parcel.data, chance.randrange(len(parcel.data)), chance.randrange(8))
            return (parcel,)

        return stage

    def begin_packets(self) -> Stage:
        """A stage that changes a bit of the last byte, behind all headers, and has the kernel check the sum."""
        chance = random.Random(self.seed)

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            if chance.random() < self.share:
                # The first byte says that the sum was not made yet and need not be looked at: neither is so here.
                parcel.data = b"\0" + _changed(parcel.data, len(parcel.data) - 1, chance.randrange(8))[1:]
            return (parcel,)

        return stage

    @classmethod
    def parse(cls, share: str) -> Corrupt:
        """`corrupt:0.1%`."""
        return cls(parse_share(share))


def _changed(content: bytes | memoryview, at: int, bit: int) -> bytes:
    changed = bytearray(content)
    changed[at] ^= 1 << bit
    return bytes(changed)
