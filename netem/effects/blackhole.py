"""Blackhole: after byte n all bytes are accepted and none arrive, without an error, as behind a dead router.

A stall keeps bytes in the sender's buffer, which fills. A black hole takes them, so the sender notices nothing.
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
    """Deliver nothing after the first `after` bytes, not even the end of a stream."""

    after: int = 0
    name: ClassVar[str] = "blackhole"
    arguments: ClassVar[str] = "[BYTES]"
    on_the_way: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a negative number."""
        if self.after < 0:
            raise ValueError(f"a black hole after {self.after} bytes: expected 0 or more")

    def begin(self) -> Stage:
        """Return a stage after which bytes beyond `after` have left the sender and are stuck. They are not dropped: if
        the link is replaced later, the stream must have no holes."""
        return beyond(self.after, _under_way)

    def begin_packets(self) -> Stage:
        """Return a stage that passes the first packets, of at most `after` bytes together, and drops all later ones."""
        return packets_beyond(self.after, lambda _: ())

    @classmethod
    def parse(cls, after: str = "0") -> Blackhole:
        """Return the effect of `blackhole` or `blackhole:64KiB`."""
        return cls(parse_size(after))


def _under_way(parcel: Parcel) -> Iterable[Parcel]:
    """Mark a parcel as never delivered, although it leaves the sender."""
    parcel.at = NEVER
    return (parcel,)
