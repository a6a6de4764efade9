"""Round trips of anything that can be run, from outside: how much longer it takes when the link is longer.

What does not depend on the RTT (CPU, disk, fixed timers, a rate limit) falls into the intercept. Where the time is no
straight line in the RTT (retransmission timers, slow start overlapping a rate), the residual shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


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
