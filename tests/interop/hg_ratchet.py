"""A command that measures each remote command of hg, by stock Mercurial over http beside our extension over hpss://.

The commands are those of `test_hg_commands`, on a longer history and over the same link. Exit status 1 if ours takes
more round trips than its budget or more bytes than stock, or leaves the users in another state.

    make ratchet ARGS=--hg
    make ratchet ARGS="--hg --write"
"""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

import click
from bench import options
from bench.histories import revisions
from bench.mercurial import LOG, serve_options
from bench.ratchet import Compared, Figures, Ratchet, excesses, markdown
from bench.ratchet_rows import Row
from bench.report import circumstances, end, say
from bench.servers import LinkCost, Workspace
from git_sides import RTT, Done, Served
from hg_histories import Change, commit, open_repository
from hg_rows import HISTORY, ROWS, SHARED
from hg_sides import BUDGETS, HgSide, copy_hg_side

from netem.proxy import Proxy

NAMES = [row.name for row in ROWS]

CHANGESETS, FILES = 300, 120
"""The size of the history that is added to that of the tests."""

_CALLS = re.compile(r"^hpss: .*, (\d+) calls? \((\d+) vfs\), ", re.MULTILINE)
"""Matches the line that our extension writes at the end of a command."""


class Stock(Served):
    """`hg serve` with a link before it."""

    def __init__(self, work: Workspace) -> None:
        self.root = work.folder / "served-http"
        self.root.mkdir()
        self.log = work.folder / LOG
        server = work.start("http", self.root, partial(serve_options, self.root, work.folder))
        self.proxy = work.enter(Proxy(RTT, server.address))

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.proxy.port}/{path}"


class Commands:
    """All commands of one of the two sides."""

    def __init__(self, folder: Path, served: Served) -> None:
        self.folder = folder
        self.served = served
        self._starts = {name: self._start(name, script) for name, script in (("history", HISTORY), ("shared", SHARED))}

    def _start(self, name: str, script: str) -> HgSide:
        side = HgSide(self.folder / name, self.served.url(name), self.served)
        first, *pushed = script.partition(HISTORY)[1:]
        side.prepare(first)
        grow(side.folder / "a")
        self.make(name)
        side.prepare("a hg update -q default" + "".join(pushed))
        return side

    def make(self, name: str) -> None:
        """Make the repository for stock: a push over http cannot."""
        if isinstance(self.served, Stock):
            subprocess.run(["hg", "init", str(self.served.root / name)], check=True)

    def run(self, number: int, start: str, before: str, command: str) -> tuple[Figures, Done, HgSide]:
        """Run one command from its start state, and return its figures, its output and its users."""
        path = f"row-{number}"
        self.served.copy(start, path)
        side = copy_hg_side(self._starts[start], self.folder / path, self.served.url(path))
        side.prepare(before)
        asked = self._requests()
        done = side.run(command, SMARTSERVER_DEBUG="hpss")
        counts = done.counts
        link = LinkCost(counts.rounds, 0.0, counts.bytes_up, counts.bytes_down, counts.handshake_rounds)
        said = _CALLS.search(done.err)
        calls, vfs = (int(said[1]), int(said[2])) if said else (self._requests() - asked, 0)
        return Figures(calls, vfs, link), done, side

    def _requests(self) -> int:
        return len(self.served.log.read_bytes().splitlines()) if isinstance(self.served, Stock) else 0


def grow(place: Path) -> None:
    """Make the history longer, on top of its branch `default`."""
    repository = open_repository(place)
    tip = repository.branchtip(b"default")
    with repository.lock(), repository.transaction(b"test"):
        for number, changed in enumerate(revisions(CHANGESETS, FILES)):
            files: dict[bytes, Change] = {name.encode(): (text, b"", None) for name, text in changed.items()}
            tip = commit(repository, (tip, bytes(20)), files, b"Revision %d" % number, {}, 1_200_000_000 + number)


def measure(only: tuple[str, ...]) -> Ratchet:
    rows = [row for row in ROWS if not only or row.name in only]
    found = Ratchet(tool="Mercurial", scheme="http://", about=f"made, {CHANGESETS} changesets and those of the tests")
    found.version = subprocess.run(["hg", "version", "-T", "{ver}"], capture_output=True, text=True, check=True).stdout
    with Workspace("hg-ratchet") as work:
        served = Served(work.folder, "--anonymous", "write")
        work.later(served.close)
        for name in ("stock", "ours"):
            (work.folder / name).mkdir()
        stock = Commands(work.folder / "stock", Stock(work))
        ours = Commands(work.folder / "ours", served)
        for number, row in enumerate(rows):
            say(row.name)
            budget = BUDGETS.get(f"hg {row.name}, long", BUDGETS[f"hg {row.name}"])
            compared = Compared(Row(row.name, row.run, budget=budget, cold=True, times=1.0))
            found.rows.append(compared)
            compared.stock, theirs, their_side = stock.run(number, row.start, row.before, row.run)
            compared.ours, mine, side = ours.run(number, row.start, row.before, row.run)
            if not mine.status == theirs.status == row.status:
                compared.problems.append(f"status {mine.status}, stock {theirs.status}, expected {row.status}")
            if side.has() != their_side.has():
                compared.problems.append("users have other changesets, phases, branches or bookmarks")
            compared.problems += excesses(compared.row, compared.ours, compared.stock)
            for each in (side, their_side):
                shutil.rmtree(each.folder)
    found.circumstances = circumstances()
    return found


@click.command()
@options.only(NAMES, "NAME", "Some commands: clone, 'push of one'")
@options.write("doc/measurements/hg_commands.md")
def command(only: tuple[str, ...], write: bool) -> None:
    """Every remote command of hg, stock over http beside our extension over hpss://: calls, trips, bytes."""
    pages = options.Pages("hg_ratchet", *([options.MEASUREMENTS / "hg_commands.md"] if write else []))
    found = measure(only)
    pages.write(markdown(found))
    click.echo(markdown(found))
    end(found.problems)


if __name__ == "__main__":
    command()
