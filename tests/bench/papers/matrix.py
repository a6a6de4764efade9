"""The matrix of 2014: histories in repositories of ours and of Subversion's formats 6 and 7, packed and not, read with
small, medium and large caches, cold and hot, from a server and from a folder; dumped, verified and loaded; beside git.

Cold: no page of the repository is in memory, and its server was just started. Hot: the same again, directly after. All
of it twice, and the second result counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Final

import click
from needs import is_met

from bench.papers import tables
from bench.papers.repositories import ALL, CONFIGS, HISTORIES, Repositories, Side, drop_pages, with_histories
from bench.papers.results import PAGE, Results
from bench.report import end, table
from bench.servers import Server, run

COMMANDS: Final = ("export", "log", "log -q", "log -v", "verify", "dump", "load")


class Matrix:
    def __init__(self, repositories: Repositories) -> None:
        self._repositories = repositories
        self._results = repositories.results

    def fill(self, command: str, history: str, configs: Sequence[str]) -> None:
        """Measure what is missing, twice, of which the first does not count; all configurations and sides in turn."""
        packings, places, times = tables.axes(command)
        for place, packing in product(places, packings):
            name = partial(tables.name_of, command, history, packing=packing, place=place)
            missing = [
                (config, side)
                for config, side in product(configs, self._repositories.sides(history))
                if side.does(command, packing, place, config)
                and name(side=side.name, config=config, time=times[-1]) not in self._results.cells
            ]
            for counts, (config, side) in product((False, True), missing):
                self._results.progress.step(f"{command}, {history}, {packing}, {place}, {config}, {side.name}")
                measured = self._load if command == "load" else self._read
                costs = measured(command, history, side, packing, place, config)
                for time, values in zip(times, costs, strict=False) if counts else ():
                    self._results.keep(name(side=side.name, config=config, time=time), values)

    def _read(
        self, command: str, history: str, side: Side, packing: str, place: str, config: str
    ) -> list[tuple[float, ...]]:
        """Cold, and hot."""
        repositories = self._repositories
        served, made = repositories.served(history, side), repositories.memory
        drop_pages([served / packing])
        with contextlib.ExitStack() as stack:
            server: Server | None = None
            if place == "server":
                server = stack.enter_context(repositories.server(served, side, config))
            where = str(served / packing) if server is None else server.url(packing)
            words = side.words(command, where, config, {"made": str(made)})
            costs = [repositories.run(words, made, alone=server is None) for _ in range(2)]
        return [(cost.seconds, min(cost.cpu / cost.seconds, 1.0), cost.largest) for cost in costs]

    def _load(
        self, command: str, history: str, side: Side, packing: str, place: str, config: str
    ) -> list[tuple[float, ...]]:
        """Into a new repository on a disk or in memory, with syncs, and without if `eatmydata` is there."""
        repositories = self._repositories
        dump = repositories.served(history, side) / "dump"
        made = repositories.disk if packing == "disk" else repositories.memory
        words = side.words(command, str(made), config, {"made": str(made), "dump": str(dump)})
        found: list[tuple[float, ...]] = []
        for before in ([], ["eatmydata"])[: 1 + is_met("eatmydata")]:
            if side.release:
                create = ["svnadmin", "create", "--compatible-version", side.release, str(made)]
                run(create, None, repositories.alone)
            elif side.name == "git":
                run(["git", "init", "-q", "--bare", str(made)], None, repositories.alone)
            cost = repositories.run([*before, *words], made, alone=True)
            found.append((cost.seconds, min(cost.cpu / cost.seconds, 1.0), cost.largest))
        return found


def _listed(results: Results) -> str:
    """The table of repositories."""
    rows = []
    for name, cell in results.cells.items():
        if name.startswith("repositories,"):
            size, revisions, items, exported = cell.values
            _, history, side, packing = name.split(", ")
            shown = f"{size:.1f}", f"{revisions:,.0f}", f"{items:,.0f}", f"{exported:.1f}"
            rows.append([history, side, packing, *shown])
    head = ["history", "side", "form", "MB", "revisions", "items of an export", "MB of an export"]
    return table(head, sorted(rows, key=lambda row: (list(HISTORIES).index(row[0]), ALL.index(row[1]), row[2])))


@click.command()
@click.option("--command", "commands", multiple=True, type=click.Choice(COMMANDS), help="Only these.")
@click.option("--config", "configs", multiple=True, type=click.Choice(list(CONFIGS)), help="Only these.")
@with_histories
def command(
    repositories: Repositories,
    histories: Sequence[str],
    *,
    commands: Sequence[str],
    configs: Sequence[str],
    write: bool,
) -> None:
    """The matrix of 2014, ours beside Subversion's formats 6 and 7 and git: seconds of the client, the share of its
    processor, and ratios, for each command, packed and not, cold and hot, with small, medium and large caches.

    The histories: `real`, the first parents of PATH's main branch; `wide`, 20,000 files and 5,000 revisions; `files`,
    400,000 files; `revisions`, 100,000 of them. Plots are written beside the page with --write. Needs Subversion,
    fincore, and eatmydata for loads without syncs.

    \b
    bench papers matrix ~/src/project --history real --history wide
    bench papers matrix ~/src/project --command export --config fast
    bench papers matrix --history revisions --command 'log -q' --config fast
    """
    results = repositories.results
    matrix = Matrix(repositories)
    for history, each in product(histories, commands or COMMANDS):
        matrix.fill(each, history, configs or list(CONFIGS))
    results.show("repositories", _listed(results), write=write, by="matrix")
    for each in commands or COMMANDS:
        parts = [part for history in HISTORIES for part in tables.tables(results.cells, each, history)]
        by = f"matrix --command '{each}'"
        results.show(f"matrix {each}", "\n".join(parts), write=write, by=by, is_drawn=True)
        if write and parts:
            drawn = PAGE.with_suffix("") / f"{each.replace(' ', '')}.svg"
            drawn.parent.mkdir(exist_ok=True)
            drawn.write_text(tables.plot(each, tables.panels(results.cells, each, list(HISTORIES))))
    count, over = tables.auto(results.cells)
    click.echo(f"\nauto: {count - len(over)} of {count} cells are within 10 % or 50 ms of the best fixed size")
    end([f"auto: {each}" for each in over])
