"""The round trips of any command, measured from outside: the slope of its time over the RTT of the link.

Time that does not depend on the RTT (CPU, disk, fixed timers, a rate limit) is in the intercept. If the time is not a
straight line in the RTT (retransmission timers, slow start overlapping a rate), the residual shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

MOST_TILT = 0.1
"""The most round trips by which late timers may change the slope. A half would change a whole number of round trips
into the next."""

MOST_TILT_SHARE = 0.02
"""The limit of `MOST_TILT` as a share of the slope, used if that is more, because each round trip may be late."""

MOST_RESIDUAL = 0.1
"""The greatest residual, as a share of the greatest RTT. If all runs at one end were late by this much, with RTTs of
0.2, 0.6 and 1 s, the slope would be wrong by an eighth of a round trip."""

APART = 0.9
"""The least difference between slope and count, in round trips, that is reported. The slope is exact to a tenth."""


@dataclass(frozen=True)
class Slope:
    """The straight line through (RTT, seconds)."""

    rounds: float
    """The slope, in seconds of duration per second of RTT, which are round trips."""
    intercept: float
    """The seconds at RTT 0."""
    residual: float
    """The greatest distance of a point from the line, in seconds."""
    points: tuple[tuple[float, float], ...]
    """The (RTT, seconds) of each run."""


def slope(run: Callable[[float], float], rtts: Sequence[float] = (0.2, 0.6, 1.0), repeat: int = 3) -> Slope:
    """Call `run` at each RTT `repeat` times and fit a line. `run` takes an RTT and returns the seconds of the run.

    The RTTs alternate, so that a machine that becomes slower is not mistaken for a slope.

    Raises:
        ValueError: there are fewer than three different RTTs (two points always lie on a line), or no runs.
    """
    if len(set(rtts)) < 3:
        raise ValueError(f"{len(set(rtts))} different RTTs: expected 3 or more, to see whether they lie on a line")
    if repeat < 1:
        raise ValueError(f"repeat {repeat}: expected 1 or more")
    return fit([(rtt, run(rtt)) for _ in range(repeat) for rtt in rtts])


def fit(points: Sequence[tuple[float, float]]) -> Slope:
    """Return the least-squares line through points of at least two different RTTs."""
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
    """Return the most round trips by which lateness may have changed the slope. `late`: for each run, the most seconds
    that it may have been late.

    Equal lateness of all runs affects only the intercept. The slope changes most if only the runs with the longer RTTs
    were late, or only the runs with the shorter ones.
    """
    mean = sum(rtt for rtt, _ in found.points) / len(found.points)
    spread = sum((rtt - mean) ** 2 for rtt, _ in found.points)
    shifts = [(rtt - mean) * seconds / spread for (rtt, _), seconds in zip(found.points, late, strict=True)]
    return max(sum(shift for shift in shifts if shift > 0), -sum(shift for shift in shifts if shift < 0))


def doubt(found: Slope, late: Sequence[float]) -> str:
    """Return the reason why a measurement is not reliable; empty if it is reliable. `late` is as in `tilt`."""
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
            f"({MOST_RESIDUAL:.0%} of the greatest RTT): the machine is busy, or the time is not linear in the RTT"
        )
    return ""


def apart(found: Slope, counted: Sequence[int]) -> str:
    """Return a remark if the slope differs from the count of every run by `APART` or more, and by `MOST_TILT_SHARE` of
    the slope or more, else an empty string.

    Neither is wrong, because they measure different things.
    """
    nearest = min(counted, key=lambda rounds: abs(rounds - found.rounds))
    distance = found.rounds - nearest
    if abs(distance) < max(APART, MOST_TILT_SHARE * abs(found.rounds)):
        return ""
    said = f"the slope is {found.rounds:.2f} round trips where the proxy counted {nearest}: "
    if distance < 0:
        return said + "some of what came one after the other was not waited for"
    return said + "there was waiting that grew with the RTT and is no chain of messages through the proxy"
