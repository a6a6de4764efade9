"""Duplicate: some packets arrive twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from netem.effects.base import Parcel, Stage, register
from netem.effects.chance import ByChance, dice


@register
@dataclass(frozen=True)
class Duplicate(ByChance):
    """Let each packet arrive twice with the probability `share`."""

    name: ClassVar[str] = "duplicate"
    of_streams: ClassVar[bool] = False

    def _stage(self, *, packets: bool) -> Stage:
        chance = dice(self, self.seed)

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            return (parcel, replace(parcel)) if chance.random() < self.share else (parcel,)

        return stage
