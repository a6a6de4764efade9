"""Every command on both sides, each on a connection of its own, from the same beginning, over the same link."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.breezy import BRZ, breezy_library
from bench.compare.links import Done, ProxyLine
from bench.compare.site import Place
from bench.peers.base import CLIENT
from bench.ratchet import history
from bench.ratchet.rows import MADE, ROWS, Ran, Row
from bench.ratchet.sides import EMPTY, SIDES, SIGNING, Plugin, Side, Stock
from bench.ratchet.verdict import CLOSING, Figures, excesses, figures
from bench.report import circumstances
from smartserver.cli.errors import CommandError
from smartserver.cli.servers import Say, Workspace, run

STARTED = "started"
"""What is kept of a side before any command."""

RTT = 0.01
"""Seconds: counts do not change with it, and stock makes some thousand round trips."""


@dataclass
class Compared:
    """One command on both sides."""

    row: Row
    stock: Figures | None = None
    ours: Figures | None = None
    """None where the command failed."""
    problems: list[str] = field(default_factory=list)
    """Outcomes that are wrong, and what ours cost too much."""
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass
class Ratchet:
    """All that was measured."""

    rows: list[Compared] = field(default_factory=list)
    about: str = ""
    """The history."""
    version: str = ""
    circumstances: str = ""

    @property
    def problems(self) -> list[str]:
        """All of them."""
        return [f"{each.row.name}: {problem}" for each in self.rows for problem in each.problems]

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "history": self.about,
            "version": self.version,
            "circumstances": self.circumstances,
            "rows": [
                {
                    "name": each.row.name,
                    "command": each.row.command,
                    "old": each.row.old,
                    "budget": each.row.budget,
                    "stock": asdict(each.stock) if each.stock else None,
                    "ours": asdict(each.ours) if each.ours else None,
                    "problems": each.problems,
                    "seconds": {side: round(seconds, 3) for side, seconds in each.seconds.items()},
                }
                for each in self.rows
            ],
        }


def names() -> list[str]:
    """What `only` may name: rows, and commands."""
    return list(dict.fromkeys([*(row.name for row in ROWS), *(row.command.split()[0] for row in ROWS)]))


def run_ratchet(source: Path | None, only: Collection[str], tools: Path | None, rtt: float, say: Say) -> Ratchet:
    """Run each command on both sides.

    `source`: the history, None for one that is made. `only`: rows or commands, all if none is named. `tools`: where
    the programs of an environment that has Breezy are, for where this one has not.

    Raises:
        CommandError: there is no Breezy, or the history cannot be had.
    """
    rows = [row for row in ROWS if not only or row.name in only or row.command.split()[0] in only]
    found = Ratchet([Compared(row) for row in rows])
    library = breezy_library(tools)
    with Workspace("ratchet") as work, ExitStack() as stack:
        fixtures = work.folder / "fixtures"
        fixtures.mkdir()
        signing = fixtures / "signing"
        signing.mkdir()
        (signing / "__init__.py").write_text(SIGNING, encoding="utf-8")
        environment = {
            **work.environment("fixtures"), **Stock.settings(work.folder, ""), **Stock.plugins(signing), **library
        }  # fmt: skip
        found.version = run([*BRZ, "version", "--short"], None, environment).strip()
        say("history")
        made_from = history.prepare(source, fixtures, environment)
        outputs: dict[str, str] = {}
        for kind in SIDES:
            _Measuring(found, kind, work, stack, {**library, **kind.plugins(signing)}, say).measure(
                fixtures, rtt, outputs
            )
            if kind is Stock:
                found.about = f"{made_from}: {_size_of(fixtures)}"
    found.circumstances = circumstances()
    return found


def _size_of(fixtures: Path) -> str:
    """How many revisions, and the size of them."""
    packs = list((fixtures / "brz" / ".bzr" / "repository" / "packs").iterdir())
    revno = (fixtures / "brz" / "trunk" / ".bzr" / "branch" / "last-revision").read_text().partition(" ")[0]
    return f"{revno} revisions on its main line, {sum(pack.stat().st_size for pack in packs) / 1e6:.1f} MB packed"


class _Measuring:
    """One side."""

    def __init__(
        self, found: Ratchet, kind: type[Side], work: Workspace, stack: ExitStack, settings: Mapping[str, str], say: Say
    ) -> None:
        self.found = found
        self.kind = kind
        self.say = say
        self.work = work
        self.folder = work.folder / kind.name
        self.line = stack.enter_context(ProxyLine())
        self.line.reserve()
        path = os.environ.get("PATH", os.defpath)
        self.place = Place(work, self.folder, kind, self.line, path, settings)

    def measure(self, fixtures: Path, rtt: float, outputs: dict[str, str]) -> None:
        """Run all rows; `outputs`: what stock printed, for ours to print the same."""
        wanted = {compared.row.where for compared in self.found.rows} - {"mine", "behind", EMPTY}
        side = self.kind(self.place, fixtures, self.folder / "pieces", wanted)
        self.say(f"{self.kind.label} begins")
        self.line.serve(self.work, side.server, self.place.environment("server"))
        side.fill()
        self.place.keep(STARTED)
        for compared in self.found.rows:
            self.say(f"{self.kind.label} {compared.row.name}")
            try:
                cost, output = self._once(side, compared, rtt)
            except CommandError as wrong:
                compared.problems.append(f"{self.kind.label} {wrong}")
                continue
            if self.kind is Plugin:
                compared.ours = cost
                if compared.row.same and compared.stock is not None and output != outputs[compared.row.name]:
                    compared.problems.append(
                        f"prints other than stock: {difference(outputs[compared.row.name], output)}"
                    )
                compared.problems += excesses(compared.row, cost, compared.stock)
            else:
                compared.stock = cost
                outputs[compared.row.name] = output

    def _once(self, side: Side, compared: Compared, rtt: float) -> tuple[Figures, str]:
        """One command: what it cost and printed.

        Raises:
            CommandError: it did not come out as it must.
        """
        row = compared.row
        self.place.put_back(STARTED)
        if row.where in side.lacks:
            raise CommandError(f"{row.where}: {side.lacks[row.where]}")
        side.take(row.where)
        for command in row.before:
            side.brz(*self._words(side, command), folder=row.where)
        if row.cold:
            shutil.rmtree(self.place.folder / f"cache-{CLIENT}", ignore_errors=True)
        tip = side.there("project/trunk")
        self.line.change(rtt)
        self.line.take()
        begun = time.monotonic()
        done = self.place.attempt(
            CLIENT, *BRZ, *self._words(side, row.command), "-Dhpss", folder=f"{CLIENT}/{row.where}"
        )
        compared.seconds[self.kind.name] = time.monotonic() - begun
        counts = self.line.take()
        self.line.change(0.0)
        for wrong in wrongs(row, done, Ran(side, done, row.where, tip)):
            raise CommandError(f"brz {row.command}: {wrong}")
        return figures(counts, done.stderr), self._plain(done.stdout)

    def _words(self, side: Side, command: str) -> list[str]:
        places = {"project": self.place.url("project"), "made": self.place.url(MADE), "file": side.file}
        return [word.format_map(places) for word in command.split()]

    def _plain(self, said: str) -> str:
        """What a command printed, without where it ran."""
        return said.replace(self.place.url("project"), "URL")


def wrongs(row: Row, done: Done, ran: Ran) -> Iterator[str]:
    """What is wrong with how a command ended, and with what it did."""
    said = CLOSING.sub("", done.stderr).strip()
    if done.status != row.status:
        lines = said.splitlines() or [""]
        first = next((line for line in lines if "ERROR" in line), lines[-1])
        yield f"status {done.status}, expected {row.status}: {first}"
    elif row.says not in done.stdout + done.stderr:
        yield f"expected {row.says!r}, it said: {done.stdout}{said}"
    elif row.same and not done.stdout.strip():
        yield "it printed nothing"
    elif row.right is not None:
        try:
            if not row.right(ran):
                yield f"its effect is wrong; it said: {said}"
        except OSError as wrong:
            yield f"its effect is wrong: {wrong}"


def difference(expected: str, printed: str) -> str:
    """The first line that differs."""
    for one, other in zip(expected.splitlines(), printed.splitlines(), strict=False):
        if one != other:
            return f"{other!r} instead of {one!r}"
    return f"{len(printed.splitlines())} lines instead of {len(expected.splitlines())}"
