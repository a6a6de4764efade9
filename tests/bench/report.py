"""A measurement's table: ours beside git's, with the bar; and the arithmetic of all measurements."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from smartserver.cli.servers import Say

PROGRESS_INTERVAL = 1.0
"""Seconds between two lines of progress."""


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that `percent` of all are not above (nearest rank).

    Raises:
        ValueError: there is no value.
    """
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def median(values: Sequence[float]) -> float:
    """The value in the middle."""
    return percentile(values, 50)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a table; `ok` None: nothing is asked of it."""

    what: str
    ours: str
    git: str = ""
    bar: str = ""
    ok: bool | None = None


class Report:
    """One table."""

    def __init__(self, title: str, beside: str = "git") -> None:
        """`beside`: what stands beside ours."""
        self.title = title
        self.beside = beside
        self.figures: list[Figure] = []

    def add(self, what: str, ours: str, git: str = "", bar: str = "", ok: bool | None = None) -> None:
        """One more line."""
        self.figures.append(Figure(what, ours, git, bar, ok))

    @property
    def missed(self) -> list[str]:
        """What does not reach its bar."""
        return [figure.what for figure in self.figures if figure.ok is False]

    def lines(self) -> list[str]:
        """The table as text."""
        rows = [("", "ours", self.beside, "bar", "")]
        verdicts = {None: "", True: "ok", False: "MISSED"}
        rows += [(f.what, f.ours, f.git, f.bar, verdicts[f.ok]) for f in self.figures]
        wide = [max(len(row[column]) for row in rows) for column in range(5)]
        table = [
            f"{row[0]:{wide[0]}}  {row[1]:>{wide[1]}}  {row[2]:>{wide[2]}}  {row[3]:>{wide[3]}}  {row[4]}".rstrip()
            for row in rows
        ]
        return [self.title, "", *table, "", f"({circumstances()})"]


def circumstances() -> str:
    """When and on what it was measured."""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    cores = f"{os.cpu_count()} cores"
    return f"{time.strftime('%Y-%m-%d')}, {cores}{load}, {platform.system()}, Python {platform.python_version()}"


class Progress:
    """How far a long measurement is: a line at most every second."""

    def __init__(self, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._said = clock()

    def step(self, what: str) -> None:
        """Something else begins."""
        self._said = self._clock()
        self._say(what)

    def count(self, what: str, done: int, total: int) -> None:
        """So many are done."""
        now = self._clock()
        if now - self._said >= PROGRESS_INTERVAL:
            self._said = now
            self._say(f"{what}: {done} of {total}")
