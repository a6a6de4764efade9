"""Corrupt: some packets arrive with a bit changed.

In the packet network the remote kernel finds the checksum wrong and drops it: a loss that costs bandwidth. On a stream
the change reaches the program, as after a broken router or a faulty memory: so a protocol's own checks are tested."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from netem.effects.base import Parcel, Stage, register
from netem.effects.chance import ByChance, dice

HEADERS = 40
"""Bytes of IP's and TCP's headers at the least. A packet is damaged behind them: TCP's checksum covers that."""


@register
@dataclass(frozen=True)
class Corrupt(ByChance):
    """Change one bit of a packet, or of a segment of a stream, with the probability `share`."""

    name: ClassVar[str] = "corrupt"

    def _stage(self, *, packets: bool) -> Stage:
        # Behind the headers: in a pure acknowledgement that is one of its options.
        first = HEADERS if packets else 0
        chance = dice(self, self.seed)

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            if len(parcel.content) > first and chance.random() < self.share:
                changed = bytearray(parcel.content)
                changed[chance.randrange(first, len(changed))] ^= 1 << chance.randrange(8)
                parcel.content = bytes(changed)
            return (parcel,)

        return stage
