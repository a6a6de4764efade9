"""The common part of effects that act on each packet, or each segment of a stream, with some probability."""

from __future__ import annotations

import random
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from netem.effects.base import Effect, Stage
from netem.tcp_model import SEGMENT
from netem.units import parse_share


def dice(effect: Effect, seed: int | str) -> random.Random:
    """Return the random generator of one stage. Its numbers depend only on `seed` and the effect's name."""
    return random.Random(f"{effect.name} {seed}")


@dataclass(frozen=True)
class ByChance(Effect):
    """An effect that happens with the probability `share`."""

    share: float
    seed: int | str = 0
    arguments: ClassVar[str] = "PERCENT"
    splits_trains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a number that is not a probability."""
        if not 0 <= self.share <= 1:
            raise ValueError(f"{self.name} with a probability of {self.share!r}: expected 0 to 1")

    @abstractmethod
    def _stage(self, *, packets: bool) -> Stage:
        """Return a stage that acts on parcels by chance. `packets`: True if a parcel is a packet with headers, False if
        it is a segment without them."""

    def begin(self) -> Stage:
        """Return a stage that cuts parcels into segments, as TCP would, and acts on some of them."""
        befall = self._stage(packets=False)
        return lambda parcel: [after for piece in parcel.pieces(SEGMENT) for after in befall(piece)]

    def begin_packets(self) -> Stage:
        """Return a stage that acts on some packets."""
        return self._stage(packets=True)

    def seeded(self, stream: str) -> Self:
        """Return the same effect with other random numbers."""
        return replace(self, seed=f"{self.seed} {stream}")

    @classmethod
    def parse(cls, share: str) -> Self:
        """Return the effect with the probability `1%` or `0.01`."""
        return cls(parse_share(share))
