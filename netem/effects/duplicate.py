"""Duplicate: some packets arrive twice."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from netem.effects.base import Effect, Parcel, Stage, register
from netem.units import parse_share


@register
@dataclass(frozen=True)
class Duplicate(Effect):
    """Let each packet arrive twice with the probability `share`."""

    share: float
    seed: int = 0
    """The same seed, the same packets."""
    name: ClassVar[str] = "duplicate"
    arguments: ClassVar[str] = "PERCENT"
    packets_only: ClassVar[bool] = True
    splits_trains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        if not 0 <= self.share <= 1:
            raise ValueError(f"duplicates of a share of {self.share!r}: expected 0 to 1")

    def begin(self) -> Stage:
        """A stage that gives some packets a copy right behind them."""
        chance = random.Random(self.seed)

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            return (parcel, replace(parcel)) if chance.random() < self.share else (parcel,)

        return stage

    @classmethod
    def parse(cls, share: str) -> Duplicate:
        """`duplicate:1%`."""
        return cls(parse_share(share))
