"""Loss: some packets do not arrive. The kernel's TCP sends them again, after a round trip or a timeout."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from netem.effects.base import Parcel, Stage, register
from netem.effects.chance import ByChance, dice


@register
@dataclass(frozen=True)
class Loss(ByChance):
    """Lose each packet with the probability `share`."""

    name: ClassVar[str] = "loss"
    of_streams: ClassVar[bool] = False

    def _stage(self, *, packets: bool) -> Stage:
        chance = dice(self, self.seed)

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            return () if chance.random() < self.share else (parcel,)

        return stage
