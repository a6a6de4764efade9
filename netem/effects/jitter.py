"""Jitter: packets come out later by chance; where order need not be kept, one may pass another."""

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
    """Add from 0 to twice `seconds`, each as likely: `seconds` on the average, beside the delay of the link."""

    seconds: float
    ordered: bool = True
    """True if a packet waits for those sent before it."""
    seed: int | str = 0
    name: ClassVar[str] = "jitter"
    arguments: ClassVar[str] = "TIME[:reorder]"
    on_the_way: ClassVar[bool] = True
    splits_trains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a time before zero."""
        nanoseconds(self.seconds)

    def begin(self) -> Stage:
        """A stage that moves `at` and leaves `left` as it is."""
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
        """The same with another chance."""
        return replace(self, seed=f"{self.seed} {stream}")

    def check_streams(self) -> None:
        """A stream keeps its order."""
        if not self.ordered:
            raise ValueError(
                "the effect jitter with reorder is of packets, and a stream keeps its order: use `netem run`"
            )

    @classmethod
    def parse(cls, seconds: str, order: str = "") -> Jitter:
        """`jitter:5ms`, `jitter:5ms:reorder`."""
        if order not in ("", "reorder"):
            raise ValueError(f"{order!r}: expected reorder, or nothing")
        return cls(parse_time(seconds), ordered=not order)
