"""What effects have in common that befall each packet, or what was sent at once, with some probability."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Self

from netem.effects.base import Effect
from netem.units import parse_share


def dice(effect: Effect, seed: int | str) -> random.Random:
    """The chance of one direction: the same seed, the same run. Two effects with one seed have nothing in common."""
    return random.Random(f"{effect.name} {seed}")


@dataclass(frozen=True)
class ByChance(Effect):
    """An effect that happens with the probability `share`."""

    share: float
    seed: int | str = 0
    arguments: ClassVar[str] = "PERCENT"
    splits_trains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        if not 0 <= self.share <= 1:
            raise ValueError(f"{self.name} with a probability of {self.share!r}: expected 0 to 1")

    @classmethod
    def parse(cls, share: str) -> Self:
        """`1%` or `0.01`."""
        return cls(parse_share(share))
