"""The common part of effects that leave the first bytes of a direction alone and act on the bytes after them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from netem.effects.base import Parcel, Stage

Fate = Callable[[Parcel], Iterable[Parcel]]
"""A function that maps a parcel to the parcels that replace it."""


def beyond(after: int, fate: Fate) -> Stage:
    """Return a stage that applies `fate` to the part of a stream after byte `after`, including its end."""
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
    """Return a stage that passes the first packets (at most `after` bytes), and applies `fate` to all later ones."""
    left = after

    def stage(parcel: Parcel) -> Iterable[Parcel]:
        nonlocal left
        if len(parcel.content) > left:
            left = -1
            return fate(parcel)
        left -= len(parcel.content)
        return (parcel,)

    return stage
