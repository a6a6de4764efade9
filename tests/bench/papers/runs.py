"""A first, second and third export from one server, which was just started, with compression off and on, as in 2010;
processors and memory of both ends; and the same beside `git archive | tar x`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from bench.papers.repositories import Repositories, Side, drop_pages, with_histories
from bench.process import Cost, Watch
from bench.report import table

RUNS: Final = ("1st", "2nd", "3rd")
LEVELS: Final = {
    ("ours", "off"): ("--compression", "0"), ("ours", "on"): ("--compression", "3"),
    ("f7", "off"): ("-c", "0"), ("f7", "on"): ("-c", "1"),
}  # fmt: skip
"""The options of servers. Level 3 of Zstd is ours where a client is on another machine; the paper's svnserve had 1."""


def exported(repositories: Repositories, history: str, side: Side, level: str) -> list[list[float]]:
    """Return, for each run: seconds, the client's processor and memory, then the server's."""
    served, made = repositories.served(history, side), repositories.memory
    drop_pages([served / "packed"])
    if side.name == "git":
        words = side.words("export", str(served / "packed"), "auto", {"made": str(made)})
        costs = [(repositories.run(words, made, alone=True), Cost(0, 0, 0, 0)) for _ in RUNS]
    else:
        costs = []
        with repositories.server(served, side, "fast", *LEVELS[side.name, level]) as server:
            words = side.words("export", server.url("packed"), "fast", {"made": str(made)})
            for _ in RUNS:
                with Watch(server.pid) as watch:
                    cost = repositories.run(words, made, alone=True)
                costs.append((cost, watch.cost))
    return [[one.seconds, one.cpu, one.largest, other.cpu, other.largest] for one, other in costs]


@click.command()
@click.option("--compression", type=click.Choice(["off", "on"]), help="Only this.")
@with_histories
def command(repositories: Repositories, histories: Sequence[str], *, compression: str | None, write: bool) -> None:
    """A first, second and third export from one server that has read nothing, with compression off and on: seconds,
    MB/s, processors and memory of both ends. Our client runs without its agent. `files` is a tree of 400,000 files.

    \b
    bench papers runs ~/src/project
    bench papers runs --history files --compression off
    """
    results = repositories.results
    for history in histories:
        rows = []
        for name, level in [*(each for each in LEVELS if compression in (None, each[1])), ("git", "")]:
            cells = [f"runs {history}, {name}, {level}, {number}" for number in RUNS]
            if any(cell not in results.cells for cell in cells):
                results.progress.step(f"{history}: {name}, compression {level}")
                for cell, values in zip(cells, exported(repositories, history, Side(name), level), strict=True):
                    results.keep(cell, values)
            found = [results.cells[cell].values for cell in cells]
            size = results.cells[f"repositories, {history}, git, packed"].values[3]
            client, server = (max(values[which] for values in found) / 1e6 for which in (2, 4))
            row = [f"{values[0]:.2f} ({values[1]:.2f}, {values[3]:.2f})" for values in found]
            label = f"{name}, compression {level}" if level else "`git archive`, `tar x`"
            rows.append([label, *row, f"{size / found[-1][0]:,.0f}", f"{client:,.0f}", f"{server:,.0f}"])
        head = ["s (processor of client, server)", *RUNS, "MB/s, 3rd", "client's MB", "server's MB"]
        results.show(f"runs {history}", table(head, rows), write=write, by=f"runs --history {history}")
