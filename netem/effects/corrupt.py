"""Corrupt: some packets arrive with a bit changed.

In the packet network the remote kernel finds a wrong checksum and drops the packet: a loss that costs bandwidth. On a
stream the change reaches the program, as after a broken router or faulty memory, and tests the protocol's own checks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from netem.effects.base import Parcel, Stage, register
from netem.effects.chance import ByChance, dice

HEADERS = 40
"""The least size of the headers of IP and TCP in bytes. Only later bytes are changed, which TCP's checksum covers."""


@register
@dataclass(frozen=True)
class Corrupt(ByChance):
    """Change one bit of a packet, or of a segment of a stream, with the probability `share`."""

    name: ClassVar[str] = "corrupt"

    def _stage(self, *, packets: bool) -> Stage:
        # In a pure acknowledgement, the bytes after the least headers are TCP's options.
        first = HEADERS if packets else 0
        chance = dice(self, self.seed)

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            if len(parcel.content) > first and chance.random() < self.share:
                changed = bytearray(parcel.content)
                changed[chance.randrange(first, len(changed))] ^= 1 << chance.randrange(8)
                parcel.content = bytes(changed)
            return (parcel,)

        return stage
