"""The table of a measurement, ours beside git's, with the bars; its exit status, its progress, and its arithmetic."""

from __future__ import annotations

import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import click

from bench.servers import LinkCost
from netem.meter import Slope, fit

T = TypeVar("T")

PROGRESS_INTERVAL = 1.0
"""Seconds between two lines of progress."""


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that at least `percent` of all do not exceed (nearest rank)."""
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def median(values: Sequence[float]) -> float:
    return percentile(values, 50)


@dataclass(frozen=True, slots=True)
class Figure:
    what: str
    ours: str
    git: str = ""
    bar: str = ""
    ok: bool | None = None


class Report:
    def __init__(self, title: str, beside: str = "git") -> None:
        """`beside`: the name of the other column."""
        self.title = title
        self.beside = beside
        self.figures: list[Figure] = []
        self.problems: list[str] = []
        """The errors in the results."""

    def add(self, what: str, ours: str, git: str = "", bar: str = "", ok: bool | None = None) -> None:
        self.figures.append(Figure(what, ours, git, bar, ok))

    def both(
        self, what: str, shown: Callable[[T], str], ours: T, git: T | None, bar: str = "", ok: bool | None = None
    ) -> None:
        """Add a line with the same figure of both; `git` is None if it has none."""
        self.add(what, shown(ours), "" if git is None else shown(git), bar, ok)

    @property
    def missed(self) -> list[str]:
        """The figures that miss their bar."""
        return [figure.what for figure in self.figures if figure.ok is False]

    def lines(self) -> list[str]:
        rows = [("", "ours", self.beside, "bar", "")]
        verdicts = {None: "", True: "ok", False: "MISSED"}
        rows += [(f.what, f.ours, f.git, f.bar, verdicts[f.ok]) for f in self.figures]
        wide = [max(len(row[column]) for row in rows) for column in range(5)]
        table = [
            f"{row[0]:{wide[0]}}  {row[1]:>{wide[1]}}  {row[2]:>{wide[2]}}  {row[3]:>{wide[3]}}  {row[4]}".rstrip()
            for row in rows
        ]
        return [self.title, "", *table, "", f"({circumstances()})"]

    def finish(self) -> None:
        """Print the table and the problems. Exit with status 1 if there is a problem or a missed bar."""
        for line in self.lines():
            click.echo(line)
        end(self.problems, missed=bool(self.missed))


def end(problems: Sequence[str], *, missed: bool = False) -> None:
    for problem in problems:
        click.echo(f"wrong: {problem}", err=True)
    if missed or problems:
        sys.exit(1)


@dataclass
class Runs:
    """One operation at some RTTs. The shortest run at each RTT counts, because other load only makes a run longer."""

    costs: list[tuple[float, LinkCost]] = field(default_factory=list)
    """RTT and cost of each run."""

    @property
    def most(self) -> int:
        """The most round trips of a run."""
        return max(cost.round_trips for _, cost in self.costs)

    @property
    def slope(self) -> Slope | None:
        """The straight line through the shortest runs; None for fewer than three RTTs."""
        rtts = sorted({rtt for rtt, _ in self.costs})
        return fit([(rtt, self.seconds(rtt)) for rtt in rtts]) if len(rtts) > 2 else None

    def seconds(self, rtt: float) -> float:
        return min(cost.seconds for at, cost in self.costs if at == rtt)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def listed(notes: Iterable[str]) -> str:
    return "\n".join(f"- {note}." for note in notes)


def say(words: str) -> None:
    click.echo(words, err=True)


def circumstances() -> str:
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    cores = f"{os.cpu_count()} cores"
    return f"{time.strftime('%Y-%m-%d')}, {cores}{load}, {platform.system()}, Python {platform.python_version()}"


class Progress:
    """Reports the progress of a long measurement, with a line at most every second."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def step(self, what: str) -> None:
        self._said = time.monotonic()
        say(what)

    def count(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self._said >= PROGRESS_INTERVAL:
            self.step(f"{what}: {done} of {total}")
