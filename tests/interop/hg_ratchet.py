"""A command that measures each remote command of hg, by stock Mercurial over http beside our extension over hpss://.

The commands are those of `test_hg_commands`, on a longer history and over the same link. Exit status 1 if ours takes
more round trips than its budget or more bytes than stock, or leaves the users in another state.

    make ratchet ARGS=--hg
    make ratchet ARGS="--hg --write"
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import click
from bench import options
from bench.histories import revisions
from bench.mercurial import serve_options
from bench.report import say
from bench.servers import Workspace
from git_sides import Served
from hg_histories import Change, commit, open_repository
from hg_rows import HISTORY, ROWS, SHARED
from hg_sides import BUDGETS, HgSide, copy_hg_side
from ratchet import Ran, Ratchet, StockServed

NAMES = [row.name for row in ROWS]

CHANGESETS, FILES = 300, 120
"""The size of the history that is added to that of the tests."""


class Commands:
    """All commands of one of the two sides."""

    def __init__(self, folder: Path, served: Served) -> None:
        folder.mkdir()
        self.folder = folder
        self.served = served
        self._starts = {name: self._start(name, script) for name, script in (("history", HISTORY), ("shared", SHARED))}

    def _start(self, name: str, script: str) -> HgSide:
        side = HgSide(self.folder / name, self.served.url(name), self.served)
        first, *pushed = script.partition(HISTORY)[1:]
        side.prepare(first)
        grow(side.folder / "a")
        if isinstance(self.served, StockServed):  # A push over http cannot make it.
            subprocess.run(["hg", "init", str(self.served.root / name)], check=True)
        side.prepare("a hg update -q default" + "".join(pushed))
        return side

    def run(self, number: int, start: str, before: str, command: str) -> Ran:
        """Run one command from its start state, and return its results and what its users have then."""
        path = f"row-{number}"
        self.served.copy(start, path)
        side = copy_hg_side(self._starts[start], self.folder / path, self.served.url(path))
        side.prepare(before)
        done = side.run(command, SMARTSERVER_DEBUG="hpss")
        has = side.has()
        shutil.rmtree(side.folder)
        return done, has


def grow(place: Path) -> None:
    """Make the history longer, on top of its branch `default`."""
    repository = open_repository(place)
    tip = repository.branchtip(b"default")
    with repository.lock(), repository.transaction(b"test"):
        for number, changed in enumerate(revisions(CHANGESETS, FILES)):
            files: dict[bytes, Change] = {name.encode(): (text, b"", None) for name, text in changed.items()}
            tip = commit(repository, (tip, bytes(20)), files, b"Revision %d" % number, {}, 1_200_000_000 + number)


def measure(only: tuple[str, ...]) -> Ratchet:
    version = subprocess.run(["hg", "version", "-T", "{ver}"], capture_output=True, text=True, check=True).stdout
    found = Ratchet(f"Mercurial {version}", "http://", f"made, {CHANGESETS} changesets and those of the tests")
    with Workspace("hg-ratchet") as work:
        root = work.folder / "served-http"
        theirs = StockServed(work, "http", root, lambda host, port: serve_options(root, work.folder, host, port))
        ours = Served(work.folder, "--anonymous", "write")
        work.later(ours.close)
        sides = [Commands(work.folder / name, served) for name, served in (("stock", theirs), ("ours", ours))]
        for number, row in enumerate(ROWS):
            if only and row.name not in only:
                continue
            say(row.name)
            stock, mine = [side.run(number, row.start, row.before, row.run) for side in sides]
            budget = BUDGETS.get(f"hg {row.name}, long", BUDGETS[f"hg {row.name}"])
            found.add(row, stock, mine, budget, 1.0)
    return found


@click.command()
@options.only(NAMES, "NAME", "Some commands: clone, 'push of one'")
@options.write("doc/measurements/hg_commands.md")
def command(only: tuple[str, ...], write: bool) -> None:
    """Every remote command of hg, stock over http beside our extension over hpss://: trips and bytes."""
    pages = options.Pages("hg_ratchet", *([options.MEASUREMENTS / "hg_commands.md"] if write else []))
    measure(only).finish(pages)


if __name__ == "__main__":
    command()
