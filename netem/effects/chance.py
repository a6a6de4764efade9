"""The common part of effects that befall each packet, or each segment of a stream, with some probability."""

from __future__ import annotations

import random
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from netem.effects.base import Effect, Stage
from netem.tcp_model import SEGMENT
from netem.units import parse_share


def dice(effect: Effect, seed: int | str) -> random.Random:
    """The chance of one stage: the same seed, the same run. Two effects with one seed have nothing in common."""
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

    @abstractmethod
    def _stage(self, *, packets: bool) -> Stage:
        """A stage that befalls some of what enters: packets with their headers, or segments without."""

    def begin(self) -> Stage:
        """A stage that cuts what was sent at once into segments, as TCP would, and befalls some of them."""
        befall = self._stage(packets=False)
        return lambda parcel: [after for piece in parcel.pieces(SEGMENT) for after in befall(piece)]

    def begin_packets(self) -> Stage:
        """A stage that befalls some packets."""
        return self._stage(packets=True)

    def seeded(self, stream: str) -> Self:
        """The same with another chance."""
        return replace(self, seed=f"{self.seed} {stream}")

    @classmethod
    def parse(cls, share: str) -> Self:
        """`1%` or `0.01`."""
        return cls(parse_share(share))
