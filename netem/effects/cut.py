"""Cut: the connection is lost for both ends when byte n has been delivered. Bytes sent after it are lost.

A link of packets knows no connections and cannot cut one. The similar effect for packets is `blackhole`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from netem.effects.base import Effect, Ending, Parcel, Stage, register
from netem.units import parse_size


@register
@dataclass(frozen=True)
class Cut(Effect):
    """Lose the connection as soon as `after` bytes were delivered; with 0, when the first byte would be delivered."""

    after: int
    name: ClassVar[str] = "cut"
    arguments: ClassVar[str] = "BYTES"
    of_packets: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse a negative number."""
        if self.after < 0:
            raise ValueError(f"cut after {self.after} bytes: expected 0 or more")

    def begin(self) -> Stage:
        """Return a stage that puts a cut after byte `after` and drops all later parcels."""
        left = self.after
        cut = False

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            nonlocal left, cut
            if cut:
                return ()
            if len(parcel.content) < left or not parcel.content:
                left -= len(parcel.content)
                return (parcel,)
            cut = True
            head, _ = parcel.split(left)
            head.ending = Ending.CUT
            return (head,)

        return stage

    @classmethod
    def parse(cls, after: str) -> Cut:
        """Return the effect of `cut:64KiB`."""
        return cls(parse_size(after))
