"""Stall: after byte n nothing moves, for a time or for ever; the connection stays open, the buffers fill."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from netem.effects.base import Effect, Parcel, Stage, register
from netem.units import NEVER, nanoseconds, parse_size, parse_time


@register
@dataclass(frozen=True)
class Stall(Effect):
    """Hold what follows the first `after` bytes, its end too, for `seconds` from when it was sent (None: for ever)."""

    after: int
    seconds: float | None = None
    name: ClassVar[str] = "stall"
    arguments: ClassVar[str] = "BYTES[:TIME]"

    def __post_init__(self) -> None:
        """Refuse numbers below zero."""
        if self.after < 0:
            raise ValueError(f"stall after {self.after} bytes: expected 0 or more")
        if self.seconds is not None:
            nanoseconds(self.seconds)

    def begin(self) -> Stage:
        """A stage that holds every parcel after byte `after` until one time, set by the first of them."""
        left = self.after
        until: int | None = None

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            nonlocal left, until
            if len(parcel.content) <= left and (parcel.content or left):
                left -= len(parcel.content)
                return (parcel,)
            head = None
            if left:
                head, parcel = parcel.split(left)
                left = 0
            if until is None:
                until = self._until(parcel)
            parcel.hold(until)
            return (parcel,) if head is None else (head, parcel)

        return stage

    def begin_packets(self) -> Stage:
        """The same of whole packets: the one that holds byte `after` of all packets is held, and what follows."""
        left = self.after
        until: int | None = None

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            nonlocal left, until
            if len(parcel.content) <= left:
                left -= len(parcel.content)
                return (parcel,)
            left = -1
            if until is None:
                until = self._until(parcel)
            parcel.hold(until)
            return (parcel,)

        return stage

    def _until(self, first: Parcel) -> int:
        return NEVER if self.seconds is None else first.at + nanoseconds(self.seconds)

    @classmethod
    def parse(cls, after: str, seconds: str | None = None) -> Stall:
        """`stall:1MB` for ever, `stall:1MB:5s`."""
        return cls(parse_size(after), None if seconds is None else parse_time(seconds))
