"""Blackhole: after byte n everything is taken and nothing arrives, without an error, as behind a dead router.

A stall keeps what it holds with the sender, whose buffers fill; a black hole lets the sender believe that all is well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from netem.effects.base import Effect, Parcel, Stage, register
from netem.effects.beyond import beyond, packets_beyond
from netem.units import NEVER, parse_size


@register
@dataclass(frozen=True)
class Blackhole(Effect):
    """Let nothing arrive after the first `after` bytes, ends of streams neither."""

    after: int = 0
    name: ClassVar[str] = "blackhole"
    arguments: ClassVar[str] = "[BYTES]"
    on_the_way: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a number below zero."""
        if self.after < 0:
            raise ValueError(f"a black hole after {self.after} bytes: expected 0 or more")

    def begin(self) -> Stage:
        """A stage that lets what comes after byte `after` leave, and never arrive: a stream must not have holes, should
        the link be changed for a better one."""
        return beyond(self.after, _under_way)

    def begin_packets(self) -> Stage:
        """A stage that swallows the packet that holds byte `after` of all packets, and what follows."""
        return packets_beyond(self.after, lambda _: ())

    @classmethod
    def parse(cls, after: str = "0") -> Blackhole:
        """`blackhole`, `blackhole:64KiB`."""
        return cls(parse_size(after))


def _under_way(parcel: Parcel) -> Iterable[Parcel]:
    """It has left, and is for ever on the way."""
    parcel.at = NEVER
    return (parcel,)
