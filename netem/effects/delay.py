"""Delay: delivers every byte later by the same time. Bytes in transit take no space in the sender's buffer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from netem.effects.base import Effect, Parcel, Stage, register
from netem.units import nanoseconds, parse_time


@register
@dataclass(frozen=True)
class Delay(Effect):
    """Deliver every byte `seconds` later."""

    seconds: float
    name: ClassVar[str] = "delay"
    arguments: ClassVar[str] = "TIME"
    on_the_way: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a negative time."""
        nanoseconds(self.seconds)

    def begin(self) -> Stage:
        """Return a stage that delays `Parcel.at` and does not change `Parcel.left`."""
        delay = nanoseconds(self.seconds)

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            if not parcel.stuck:
                parcel.at += delay
            return (parcel,)

        return stage

    @classmethod
    def parse(cls, seconds: str) -> Delay:
        """Return the effect of `delay:50ms`."""
        return cls(parse_time(seconds))
