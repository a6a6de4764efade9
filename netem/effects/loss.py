"""Loss: some packets do not arrive. The kernel's TCP sends them again, at the price of a round trip or a timeout."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from netem.effects.base import Effect, Parcel, Stage, register
from netem.units import parse_share


@register
@dataclass(frozen=True)
class Loss(Effect):
    """Lose each packet with the probability `share`."""

    share: float
    seed: int = 0
    """The same seed, the same packets."""
    name: ClassVar[str] = "loss"
    arguments: ClassVar[str] = "PERCENT"
    packets_only: ClassVar[bool] = True
    splits_trains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        if not 0 <= self.share <= 1:
            raise ValueError(f"loss of a share of {self.share!r}: expected 0 to 1")

    def begin(self) -> Stage:
        """A stage that swallows some packets."""
        chance = random.Random(self.seed)

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            return () if chance.random() < self.share else (parcel,)

        return stage

    @classmethod
    def parse(cls, share: str) -> Loss:
        """`loss:1%`."""
        return cls(parse_share(share))
