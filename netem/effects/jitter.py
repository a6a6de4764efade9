"""Jitter: delays packets by random times. A packet may overtake another if the order need not be kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from netem.effects.base import Effect, Parcel, Stage, register
from netem.effects.chance import dice
from netem.units import nanoseconds, parse_time


@register
@dataclass(frozen=True)
class Jitter(Effect):
    """Delay each packet by a random time, evenly distributed from 0 to twice `seconds`, besides the link's delay."""

    seconds: float
    ordered: bool = True
    """True if a packet waits for the packets sent before it."""
    seed: int | str = 0
    name: ClassVar[str] = "jitter"
    arguments: ClassVar[str] = "TIME[:reorder]"
    on_the_way: ClassVar[bool] = True
    splits_trains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a negative time."""
        nanoseconds(self.seconds)

    def begin(self) -> Stage:
        """Return a stage that delays `Parcel.at` and does not change `Parcel.left`."""
        most = 2 * nanoseconds(self.seconds)
        chance = dice(self, self.seed)
        last = 0

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            nonlocal last
            if not parcel.stuck:
                parcel.at += chance.randint(0, most)
                if self.ordered:
                    last = parcel.at = max(last, parcel.at)
            return (parcel,)

        return stage

    def seeded(self, stream: str) -> Jitter:
        """Return the same effect with other random numbers."""
        return replace(self, seed=f"{self.seed} {stream}")

    def check_streams(self) -> None:
        """Refuse reordering, which a stream cannot have."""
        if not self.ordered:
            raise ValueError(
                "the effect jitter with reorder is of packets, and a stream keeps its order: use `netem run`"
            )

    @classmethod
    def parse(cls, seconds: str, order: str = "") -> Jitter:
        """Return the effect of `jitter:5ms` or `jitter:5ms:reorder`."""
        if order not in ("", "reorder"):
            raise ValueError(f"{order!r}: expected reorder, or nothing")
        return cls(parse_time(seconds), ordered=not order)
