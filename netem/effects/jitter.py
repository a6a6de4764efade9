"""Jitter: packets come out earlier or later by chance; where order need not be kept, one may pass another."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from netem.effects.base import Effect, Parcel, Stage, register
from netem.units import nanoseconds, parse_time


@register
@dataclass(frozen=True)
class Jitter(Effect):
    """Add from 0 to twice `seconds`, each as likely: `seconds` on the average.

    Never less than nothing, so that it may stand alone; the delay of the link is beside it. A stream keeps its order
    whatever is asked for here.
    """

    seconds: float
    ordered: bool = True
    """Whether a packet waits for those sent before it."""
    seed: int = 0
    """The same seed, the same run."""
    name: ClassVar[str] = "jitter"
    arguments: ClassVar[str] = "TIME[:reorder]"
    splits_trains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a time before zero."""
        nanoseconds(self.seconds)

    def begin(self) -> Stage:
        """A stage that moves `at` and leaves `left` as it is."""
        most = 2 * nanoseconds(self.seconds)
        chance = random.Random(self.seed)
        last = 0

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            nonlocal last
            if not parcel.stuck:
                parcel.at += chance.randint(0, most)
                if self.ordered:
                    last = parcel.at = max(last, parcel.at)
            return (parcel,)

        return stage

    @classmethod
    def parse(cls, seconds: str, order: str = "") -> Jitter:
        """`jitter:5ms`, `jitter:5ms:reorder`."""
        if order not in ("", "reorder"):
            raise ValueError(f"{order!r}: expected reorder, or nothing")
        return cls(parse_time(seconds), ordered=not order)
