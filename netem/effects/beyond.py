"""The common part of effects that spare the first bytes of a direction and act on those after them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from netem.effects.base import Parcel, Stage

Fate = Callable[[Parcel], Iterable[Parcel]]
"""A function from a parcel to the parcels that take its place."""


def beyond(after: int, fate: Fate) -> Stage:
    """Apply `fate` to all of a stream that comes after byte `after`, its end too, and to nothing else."""
    left = after

    def stage(parcel: Parcel) -> Iterable[Parcel]:
        nonlocal left
        if len(parcel.content) <= left and (parcel.content or left):
            left -= len(parcel.content)
            return (parcel,)
        if not left:
            return fate(parcel)
        head, rest = parcel.split(left)
        left = 0
        return (head, *fate(rest))

    return stage


def packets_beyond(after: int, fate: Fate) -> Stage:
    """Apply `fate` to the packet that holds byte `after` of all, and to all packets after it; packets stay whole."""
    left = after

    def stage(parcel: Parcel) -> Iterable[Parcel]:
        nonlocal left
        if len(parcel.content) > left:
            left = -1
            return fate(parcel)
        left -= len(parcel.content)
        return (parcel,)

    return stage
