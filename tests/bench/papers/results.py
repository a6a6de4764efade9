"""Results in a file: a cell is there once, with the commit that it measured, whatever ends the run; and the tables of
doc/measurements/papers.md that come of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from bench import options
from bench.report import Progress, circumstances
from bench.servers import run

PAGE: Final = options.MEASUREMENTS / "papers.md"


class Cell(msgspec.Struct, frozen=True):
    """One result."""

    values: tuple[float, ...]
    commit: str
    circumstances: str = ""
    """Date, machine and load."""


class Results:
    """The cells of a file, by name."""

    def __init__(self, folder: Path, scale: int = 1) -> None:
        """`scale`: divides the sizes of histories, whose results lie apart."""
        self.folder = folder.resolve() / (f"scale-{scale}" if scale > 1 else "")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.scale = scale
        self.progress = Progress()
        self._path = self.folder / "results.json"
        self.cells = self._read()
        self._commit = run(["git", "describe", "--always", "--dirty"], Path(__file__).parent, os.environ).strip()

    def _read(self) -> dict[str, Cell]:
        return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Cell]) if self._path.exists() else {}

    def keep(self, name: str, values: Iterable[float]) -> None:
        """Write a cell."""
        self.cells = self._read()  # Another part may run beside this one.
        self.cells[name] = Cell(tuple(round(value, 5) for value in values), self._commit, circumstances())
        new = self._path.with_suffix(".new")
        new.write_bytes(msgspec.json.format(msgspec.json.encode(self.cells)))
        new.replace(self._path)

    def find(self, name: str, measured: Callable[[], Sequence[float]]) -> tuple[float, ...]:
        """The values of a cell, which are measured if they are not there."""
        if name not in self.cells:
            self.progress.step(name)
            self.keep(name, measured())
        return self.cells[name].values

    def show(self, part: str, table: str, *, write: bool, by: str = "", is_drawn: bool = False) -> None:
        """Print what came of a part, and put it into its place in the page. `by`: the words that write it. `is_drawn`:
        the page has a plot in place of the table."""
        cells = [cell for name, cell in self.cells.items() if name.startswith(f"{part},")]
        if not cells:
            return
        last = max(cells, key=lambda cell: cell.circumstances).circumstances
        commits = ", ".join(sorted({cell.commit for cell in cells}))
        source = f"{len(cells)} cells of {commits}; the last one: {last}."
        shown = f"{table.strip()}\n\n{source}"
        click.echo(f"\n{shown}")
        if write:
            options.Pages(f"papers {by or part}", PAGE).write(source if is_drawn else shown)


def with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of each part that keeps results."""
    place = click.Path(file_okay=False, path_type=Path)
    for option in (
        options.write(str(PAGE)),
        click.option("--folder", type=place, default="build/papers", show_default=True, help="Has what is kept."),
    ):
        function = option(function)
    return function
