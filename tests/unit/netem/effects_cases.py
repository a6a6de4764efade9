"""Drive one effect by hand."""

from __future__ import annotations

from netem.effects import Effect, Ending, Parcel

MS = 1_000_000


def packets_through(effect: Effect, *entering: tuple[int, bytes]) -> list[tuple[int, bytes]]:
    """(ms, packet) of what comes out when packets enter one after the other; -1: never."""
    stage = effect.begin_packets()
    return [
        (-1 if parcel.stuck else parcel.at // MS, bytes(parcel.content))
        for at, packet in entering
        for parcel in stage(Parcel(packet, at * MS, at * MS))
    ]


def through(
    effect: Effect, *entering: tuple[int, bytes] | tuple[int, bytes, Ending]
) -> list[tuple[int, bytes, Ending]]:
    """(ms, bytes, ending) of what comes out when (ms, bytes[, ending]) enter one after the other; -1: never."""
    stage = effect.begin()
    out: list[tuple[int, bytes, Ending]] = []
    for at, data, *ending in entering:
        for parcel in stage(Parcel(data, at * MS, at * MS, ending[0] if ending else Ending.MORE)):
            out.append((-1 if parcel.stuck else parcel.at // MS, bytes(parcel.content), parcel.ending))
    return out
