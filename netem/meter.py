"""Round trips of anything that can be run, from outside: how much longer it takes when the link is longer.

What does not depend on the RTT (CPU, disk, fixed timers, a rate limit) falls into the intercept. Where the time is no
straight line in the RTT (retransmission timers, slow start overlapping a rate), the residual shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

MOST_TILT = 0.1
"""Round trips that late timers may have added to the slope or taken from it: far from the half at which a whole number
of trips would be read as the next."""

MOST_TILT_SHARE = 0.02
"""The same as a share of the slope, where that is more: the waits that can be late are as many as the trips."""

MOST_RESIDUAL = 0.1
"""Share of the greatest RTT that a run may lie off the line by. Were all runs at one end late by so much, with RTTs of
0.2, 0.6 and 1 s, the slope would be an eighth of a round trip off."""

APART = 0.9
"""Round trips between slope and count that are remarked: a whole one, which the slope tells to a tenth."""


@dataclass(frozen=True)
class Slope:
    """The straight line through (RTT, seconds)."""

    rounds: float
    """Its slope: seconds of duration a second of RTT, which is round trips."""
    intercept: float
    """Seconds at RTT 0."""
    residual: float
    """The greatest distance of a point from the line, in seconds."""
    points: tuple[tuple[float, float], ...]
    """(RTT, seconds) of each run."""


def slope(run: Callable[[float], float], rtts: Sequence[float] = (0.2, 0.6, 1.0), repeat: int = 3) -> Slope:
    """Run at each RTT `repeat` times and fit by least squares; `run` takes an RTT and returns the seconds it took.

    The RTTs take turns, so that a machine that grows slower meanwhile does not look like a slope.

    Raises:
        ValueError: fewer than three different RTTs (two points always lie on a line), or no run.
    """
    if len(set(rtts)) < 3:
        raise ValueError(f"{len(set(rtts))} different RTTs: expected 3 or more, to see whether they lie on a line")
    if repeat < 1:
        raise ValueError(f"repeat {repeat}: expected 1 or more")
    return fit([(rtt, run(rtt)) for _ in range(repeat) for rtt in rtts])


def fit(points: Sequence[tuple[float, float]]) -> Slope:
    """The least-squares line through points of at least two different RTTs."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if not spread:
        raise ValueError("all points have the same RTT")
    rounds = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    intercept = mean_y - rounds * mean_x
    residual = max(abs(y - intercept - rounds * x) for x, y in points)
    return Slope(rounds, intercept, residual, tuple(points))


def tilt(found: Slope, late: Sequence[float]) -> float:
    """By how many round trips lateness may have moved the slope, if run after run was late by no more than `late`.

    What makes all runs late alike is in the intercept. The slope moves most when the runs of the longer RTTs were late
    and the others were not, or the other way round.
    """
    mean = sum(rtt for rtt, _ in found.points) / len(found.points)
    spread = sum((rtt - mean) ** 2 for rtt, _ in found.points)
    shifts = [(rtt - mean) * seconds / spread for (rtt, _), seconds in zip(found.points, late, strict=True)]
    return max(sum(shift for shift in shifts if shift > 0), -sum(shift for shift in shifts if shift < 0))


def doubt(found: Slope, late: Sequence[float]) -> str:
    """Why the measurement should not be judged, `late` being seconds run after run; empty when it may be."""
    may_tilt = max(MOST_TILT, MOST_TILT_SHARE * found.rounds)
    may_be_off = MOST_RESIDUAL * max(rtt for rtt, _ in found.points)
    tilted = tilt(found, late)
    if tilted > may_tilt:
        return (
            f"late timers may have moved the slope by {tilted:.2f} round trips, where {may_tilt:.2f} are the most: "
            "this machine is too busy for such RTTs; take them further apart"
        )
    if found.residual > may_be_off:
        return (
            f"a run lies {found.residual * 1000:.0f} ms off the line, where {may_be_off * 1000:.0f} ms are the most "
            f"({MOST_RESIDUAL:.0%} of the greatest RTT): the machine is busy, or the time is no straight line"
        )
    return ""


def apart(found: Slope, counted: Sequence[int]) -> str:
    """A remark on a slope that differs by a whole round trip from the count of every run; empty when it does not.

    Neither is wrong: they tell of different things.
    """
    nearest = min(counted, key=lambda rounds: abs(rounds - found.rounds))
    distance = found.rounds - nearest
    if abs(distance) < max(APART, MOST_TILT_SHARE * abs(found.rounds)):
        return ""
    said = f"the slope is {found.rounds:.2f} round trips where the proxy counted {nearest}: "
    if distance < 0:
        return said + "some of what came one after the other was not waited for"
    return said + "there was waiting that grew with the RTT and is no chain of messages through the proxy"
