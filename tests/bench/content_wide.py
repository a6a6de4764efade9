"""Export of a tree of very many files: ours beside Subversion's and git's own way, and the memory of both ends."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import click

from bench import linear, options
from bench.content import EXPORT, Content, Side
from bench.copies import MEMORY
from bench.process import Cost, Watch, measure
from bench.report import Report, median
from bench.servers import Workspace, serving
from smartserver.trace.text import size

LENGTH: Final = 5000
"""Bytes of a file."""

RATIO: Final = 1.0
"""Times Subversion's seconds that ours may take."""


class Wide(Content):
    """Both sides with the tree; git's repository is the one that it came from. Without the agent: what a client of ours
    costs is that of its own process."""

    def __init__(self, work: Workspace, make: Callable[[Path, Mapping[str, str]], object]) -> None:
        super().__init__(work, make)
        self.environment["SMARTSERVER_AGENT"] = "0"
        self.sides[0].serve = serving  # With the caches that it has by default: nothing is asked for twice.

    def export(self, side: Side | None) -> tuple[Cost, Cost]:
        """What an export costs the client, and the server; None: by git, which has none."""
        made = self.work.folder / "made"
        try:
            if side is None:
                made.mkdir()
                words = ["sh", "-c", f"git archive main | tar x -C {made}"]
                return measure(words, self.git, self.environment)[0], Cost(0, 0, 0, 0)
            with self.served(side) as server, Watch(server.pid) as watch:
                words = side.words(EXPORT, server, "packed", made, made)
                cost = measure(words, None, self.environment)[0]
            return cost, watch.cost
        finally:
            shutil.rmtree(made, ignore_errors=True)


@click.command()
@options.number("-n files", 400_000, f"Of the tree, {LENGTH:,} bytes each.")
@options.number("--repeat", 3, "Timed runs of each.")
def command(files: int, repeat: int) -> None:
    """Export of a tree of many files, ours beside svn and `git archive | tar x`: files and MB a second, memory.

    A server is started for each run. The disk needs 8 times the size of the tree.

    \b
    bench content-wide
    bench content-wide -n 100000
    """
    with Workspace("bench") as work:
        wide = Wide(work, lambda git, environment: linear.write(git, environment, linear.wide_tree(files, LENGTH)))
        report = Report(f"{files:,} files, {size(files * LENGTH)}, medians of {repeat}", "svn")
        found: list[list[tuple[Cost, Cost]]] = [[], [], []]
        for _ in range(repeat):
            for side, costs in zip((*wide.sides, None), found, strict=True):
                costs.append(wide.export(side))
        ours, theirs, git = (median([cost.seconds for cost, _ in costs]) for costs in found)
        report.add(
            "export", f"{ours:.1f} s ({ours / theirs:.2f} x)", f"{theirs:.1f} s", f"{RATIO:g} x", ours <= theirs * RATIO
        )
        for what, of in (("files", 1.0), ("MB", LENGTH / 1e6)):
            rate = partial(_rate, files * of)
            report.both(f"{what} a second", rate, ours, theirs)
            report.both(f"{what} a second, git archive | tar x", rate, git, None)
        for end, name in enumerate(("client", "server")):
            mine, other = (max(costs[end].largest for costs in side) for side in found[:2])
            report.add(f"memory of the {name}", size(mine), size(other), size(MEMORY), mine < MEMORY)
            mine_cpu, other_cpu = (median([costs[end].cpu for costs in side]) for side in found[:2])
            report.both(f"CPU of the {name}", "{:.1f} s".format, mine_cpu, other_cpu)
    report.finish()


def _rate(amount: float, seconds: float) -> str:
    return f"{amount / seconds:,.1f}"
