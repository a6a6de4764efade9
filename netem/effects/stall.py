"""Stall: after byte n no byte moves, for a time or for ever. The connection stays open and the buffers fill."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from netem.effects.base import Effect, Parcel, Stage, register
from netem.effects.beyond import Fate, beyond, packets_beyond
from netem.units import NEVER, nanoseconds, parse_size, parse_time


@register
@dataclass(frozen=True)
class Stall(Effect):
    """Hold all bytes after the first `after`, and the end of the stream, for `seconds` from the first held byte.
    `seconds` is None to hold them for ever."""

    after: int
    seconds: float | None = None
    name: ClassVar[str] = "stall"
    arguments: ClassVar[str] = "BYTES[:TIME]"

    def __post_init__(self) -> None:
        """Refuse negative numbers."""
        if self.after < 0:
            raise ValueError(f"stall after {self.after} bytes: expected 0 or more")
        if self.seconds is not None:
            nanoseconds(self.seconds)

    def begin(self) -> Stage:
        """Return a stage that holds everything after byte `after` until a fixed time, which is set when the first byte
        is held."""
        return beyond(self.after, self._holding())

    def begin_packets(self) -> Stage:
        """Return a stage that passes the first packets, of at most `after` bytes together, and holds all later ones."""
        return packets_beyond(self.after, self._holding())

    def _holding(self) -> Fate:
        until: int | None = None

        def hold(parcel: Parcel) -> Iterable[Parcel]:
            nonlocal until
            if until is None:
                until = NEVER if self.seconds is None else parcel.at + nanoseconds(self.seconds)
            parcel.hold(until)
            return (parcel,)

        return hold

    @classmethod
    def parse(cls, after: str, seconds: str | None = None) -> Stall:
        """Return the effect of `stall:1MB` (for ever) or `stall:1MB:5s`."""
        return cls(parse_size(after), None if seconds is None else parse_time(seconds))
