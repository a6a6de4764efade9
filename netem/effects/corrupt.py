"""Corrupt: some packets arrive with a bit changed.

In the packet network the far kernel finds the checksum wrong and drops it: a loss that costs bandwidth. On a stream the
change reaches the program, as after a broken router or a faulty memory: so a protocol's own checks are tested.
"""

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
    """Change one bit of a packet, or of what was sent at once, with the probability `share`."""

    name: ClassVar[str] = "corrupt"

    def begin(self) -> Stage:
        """A stage that changes a bit anywhere."""
        return self._stage(0)

    def begin_packets(self) -> Stage:
        """A stage that changes a bit behind the headers, in a pure acknowledgement of its options."""
        return self._stage(HEADERS)

    def _stage(self, first: int) -> Stage:
        chance = dice(self, self.seed)

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            if len(parcel.content) > first and chance.random() < self.share:
                changed = bytearray(parcel.content)
                changed[chance.randrange(first, len(changed))] ^= 1 << chance.randrange(8)
                parcel.content = bytes(changed)
            return (parcel,)

        return stage
