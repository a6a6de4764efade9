"""What effects have in common that spare the first bytes of a direction, and say what becomes of those after them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from netem.effects.base import Parcel, Stage

Fate = Callable[[Parcel], Iterable[Parcel]]
"""What becomes of a parcel, in parcels."""


def beyond(after: int, fate: Fate) -> Stage:
    """Of a stream: what comes after byte `after` has that `fate`, an end of the stream too, and only that."""
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
    """Of packets, which stay whole: the one that holds byte `after` of all has that `fate`, and all after it."""
    left = after

    def stage(parcel: Parcel) -> Iterable[Parcel]:
        nonlocal left
        if len(parcel.content) > left:
            left = -1
            return fate(parcel)
        left -= len(parcel.content)
        return (parcel,)

    return stage
