"""Blackhole: after byte n everything is taken and nothing arrives, without an error, as behind a dead router.

A stall keeps what it holds, and the sender's buffers fill; a black hole lets the sender believe that all is well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from netem.effects.base import Effect, Parcel, Stage, register
from netem.units import parse_size


@register
@dataclass(frozen=True)
class Blackhole(Effect):
    """Let nothing arrive after the first `after` bytes, ends of streams neither."""

    after: int = 0
    name: ClassVar[str] = "blackhole"
    arguments: ClassVar[str] = "[BYTES]"

    def __post_init__(self) -> None:
        """Refuse a number below zero."""
        if self.after < 0:
            raise ValueError(f"a black hole after {self.after} bytes: expected 0 or more")

    def begin(self) -> Stage:
        """A stage that swallows what comes after byte `after`."""
        left = self.after

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            nonlocal left
            if left and len(parcel.data) <= left:
                left -= len(parcel.data)
                return (parcel,)
            head, _ = parcel.split(left)
            left = 0
            return (head,) if head.data else ()

        return stage

    def begin_packets(self) -> Stage:
        """The same without cutting a packet: the one that holds byte `after` is lost whole."""
        left = self.after

        def stage(parcel: Parcel) -> Iterable[Parcel]:
            nonlocal left
            if len(parcel.data) > left:
                left = 0
                return ()
            left -= len(parcel.data)
            return (parcel,)

        return stage

    @classmethod
    def parse(cls, after: str = "0") -> Blackhole:
        """`blackhole`, `blackhole:64KiB`."""
        return cls(parse_size(after))
