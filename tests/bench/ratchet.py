"""Every remote command of brz, by stock Breezy over bzr:// and by our plugin over hpss://: each on a connection of its
own, from the same state, over the same link."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import click

from bench import histories, options
from bench.breezy import BRZ
from bench.links import Done, ProxyLine, measured
from bench.ratchet_rows import MADE, ROWS, Ran, Row
from bench.ratchet_sides import CLIENT, EMPTY, SIDES, SIGNING, Place, Plugin, Side, Stock
from bench.report import circumstances, end, listed, say, table
from bench.servers import LinkCost, Workspace, run
from netem.units import plural
from smartserver.cli.errors import CommandError
from smartserver.trace.text import size

RTT = 0.01
"""Seconds; no count depends on it."""

STARTED = "started"
"""The name under which the state before any command is kept."""

NAMES = list(dict.fromkeys([*(row.name for row in ROWS), *(row.command.split()[0] for row in ROWS)]))
"""The names that `--only` accepts: rows and commands."""

CLOSING = re.compile(r"^HPSS calls: (\d+) \((\d+) vfs\) .*\n?", re.MULTILINE)
"""Matches the line that `-Dhpss` writes at the end of a command, once for each connection."""


@dataclass(frozen=True)
class Figures:
    calls: int
    vfs: int
    link: LinkCost

    @property
    def rounds(self) -> int:
        """Round trips on the link without those of handshakes."""
        return self.link.round_trips - self.link.handshakes

    @property
    def bytes(self) -> int:
        return self.link.bytes_up + self.link.bytes_down


def figures(link: LinkCost, stderr: str) -> Figures:
    """Return the figures of a command, from the traffic on the link and from its standard error."""
    said = [(int(calls), int(vfs)) for calls, vfs in CLOSING.findall(stderr)]
    return Figures(sum(calls for calls, _ in said), sum(vfs for _, vfs in said), link)


def excesses(row: Row, ours: Figures, stock: Figures | None) -> Iterator[str]:
    """Yield each excess of our cost over its budget, or over stock's."""
    if ours.rounds > row.budget:
        yield f"{plural(ours.rounds, 'round trip')}, budget {row.budget}"
    if ours.link.handshakes > 1:
        yield f"{ours.link.handshakes} handshakes"
    if ours.vfs:
        yield plural(ours.vfs, "VFS call")
    if row.times is not None and stock is not None and ours.bytes > stock.bytes * row.times:
        yield f"{size(ours.bytes)}, stock {size(stock.bytes)}"


@dataclass
class Compared:
    row: Row
    stock: Figures | None = None
    ours: Figures | None = None
    """The figures of ours; None if the command failed."""
    problems: list[str] = field(default_factory=list)
    """Wrong outcomes, and excesses of our cost."""


@dataclass
class Ratchet:
    rows: list[Compared] = field(default_factory=list)
    about: str = ""
    """A description of the history."""
    version: str = ""
    circumstances: str = ""
    tool: str = "Breezy"
    scheme: str = Stock.label
    """The scheme of the stock URLs."""

    @property
    def problems(self) -> list[str]:
        return [f"{each.row.name}: {problem}" for each in self.rows for problem in each.problems]


def measure(source: Path | None, only: Collection[str]) -> Ratchet:
    rows = [row for row in ROWS if not only or row.name in only or row.command.split()[0] in only]
    found = Ratchet([Compared(row) for row in rows])
    with Workspace("ratchet") as work, ExitStack() as stack:
        fixtures = work.folder / "fixtures"
        signing = fixtures / "signing"
        signing.mkdir(parents=True)
        (signing / "__init__.py").write_text(SIGNING, encoding="utf-8")
        environment = {
            **work.environment("fixtures"), **Stock.settings(work.folder), **Stock.plugins(signing)
        }  # fmt: skip
        found.version = run([*BRZ, "version", "--short"], None, environment).strip()
        say("history")
        made_from = histories.prepare(source, fixtures, environment)
        outputs: dict[str, str] = {}
        for kind in SIDES:
            measuring = _Measuring(found, kind, work, stack, kind.plugins(signing))
            measuring.measure(fixtures, outputs)
            if kind is Stock:
                found.about = f"{made_from}: {_size_of(fixtures)}"
    found.circumstances = circumstances()
    return found


def _size_of(fixtures: Path) -> str:
    """Return a phrase with the number of revisions and their packed size."""
    packs = list((fixtures / "brz" / ".bzr" / "repository" / "packs").iterdir())
    revno = (fixtures / "brz" / "trunk" / ".bzr" / "branch" / "last-revision").read_text().partition(" ")[0]
    return f"{revno} revisions on its main line, {sum(pack.stat().st_size for pack in packs) / 1e6:.1f} MB packed"


class _Measuring:
    def __init__(
        self, found: Ratchet, kind: type[Side], work: Workspace, stack: ExitStack, settings: Mapping[str, str]
    ) -> None:
        self.found = found
        self.kind = kind
        self.work = work
        self.folder = work.folder / kind.name
        self.line = ProxyLine(stack)
        settings = {**kind.settings(self.folder / "live"), **settings}
        self.place = Place(work, self.folder, self.line, kind.label, settings)

    def measure(self, fixtures: Path, outputs: dict[str, str]) -> None:
        """Run all rows. `outputs` keeps the output of stock, which ours must print as well."""
        wanted = {compared.row.where for compared in self.found.rows} - {"mine", "behind", EMPTY}
        side = self.kind(self.place, fixtures, self.folder / "pieces", wanted)
        say(f"{self.kind.label} begins")
        self.line.serve(self.work, side.server, self.place.environments["server"])
        side.fill()
        self.place.keep(STARTED)
        for compared in self.found.rows:
            say(f"{self.kind.label} {compared.row.name}")
            try:
                cost, output = self._once(side, compared)
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

    def _once(self, side: Side, compared: Compared) -> tuple[Figures, str]:
        """Run one command, and return its figures and its output."""
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
        words = [*BRZ, *self._words(side, row.command), "-Dhpss"]
        done, link = measured(self.line.network, RTT, lambda: self.place.attempt(*words, folder=row.where))
        for wrong in wrongs(row, done, Ran(side, done, row.where, tip)):
            raise CommandError(f"brz {row.command}: {wrong}")
        # What a command printed, without where it ran.
        return figures(link, done.stderr), done.stdout.replace(self.place.url("project"), "URL")

    def _words(self, side: Side, command: str) -> list[str]:
        places = {"project": self.place.url("project"), "made": self.place.url(MADE), "file": side.file}
        return [word.format_map(places) for word in command.split()]


def wrongs(row: Row, done: Done, ran: Ran) -> Iterator[str]:
    """Yield each error in how a command ended and in its effect."""
    said = CLOSING.sub("", done.stderr).strip()
    whole = done.stdout + said
    if done.status != row.status:
        lines = whole.strip().splitlines() or [""]
        first = next((line for line in lines if "ERROR" in line), lines[-1])
        yield f"status {done.status}, expected {row.status}: {first}"
    elif row.says not in whole:
        yield f"expected {row.says!r}, it said: {whole.strip()}"
    elif row.same and not done.stdout.strip():
        yield "it printed nothing"
    elif row.right is not None:
        try:
            if not row.right(ran):
                yield f"its effect is wrong; it said: {said}"
        except OSError as wrong:
            yield f"its effect is wrong: {wrong}"


def difference(expected: str, printed: str) -> str:
    for one, other in zip(expected.splitlines(), printed.splitlines(), strict=False):
        if one != other:
            return f"{other!r} instead of {one!r}"
    return f"{len(printed.splitlines())} lines instead of {len(expected.splitlines())}"


def markdown(found: Ratchet) -> str:
    """Return the table, and the notes that explain it."""
    was = ["was"] if _has_old(found) else []
    rows = [
        [each.row.name, *["" if each.row.old is None else str(each.row.old) for _ in was], *_cells(each.stock),
         *_cells(each.ours), "MISSED: " + "; ".join(each.problems) if each.problems else ""]
        for each in found.rows
    ]  # fmt: skip
    sides = [word for scheme in (found.scheme, Plugin.label) for word in (f"{scheme} trips", "up / down")]
    return f"{table(['command', *was, *sides, ''], rows)}\n\n{listed(notes(found))}"


def _has_old(found: Ratchet) -> bool:
    return any(each.row.old is not None for each in found.rows)


def _cells(cost: Figures | None) -> list[str]:
    """Return cells such as `9 + 1 (2 vfs)` and `1.2 KB / 145.0 KB`."""
    if cost is None:
        return ["-", "-"]
    calls = f" ({cost.vfs} vfs)" if cost.vfs else ""
    return [
        f"{cost.rounds} + {cost.link.handshakes}{calls}",
        f"{size(cost.link.bytes_up)} / {size(cost.link.bytes_down)}",
    ]


def notes(found: Ratchet) -> list[str]:
    """Return notes on the circumstances of the measurement, and its results."""
    ours = [each.ours for each in found.rows if each.ours is not None]
    both = [each for each in found.rows if each.ours is not None and each.stock is not None]
    stock = sum(each.stock.rounds for each in both if each.stock is not None)
    more = [each.row.name for each in both if each.stock and each.ours and each.ours.bytes > each.stock.bytes]
    was = "was: the calls Breezy's own `test_vfs_ratchet` asserts; " if _has_old(found) else ""
    return [
        f"History: {found.about}. {found.tool} {found.version} on both sides; {found.circumstances}",
        f"{was}trips: round trips on the link + those of handshakes, and VFS calls",
        f"{len(ours)} of {plural(len(found.rows), 'command')} are done over hpss://: "
        f"{plural(sum(cost.rounds for cost in ours), 'round trip')} where {found.scheme} takes {stock}, "
        f"{plural(sum(cost.vfs for cost in ours), 'VFS call')}",
        *([f"More bytes over hpss://: {'; '.join(more)}"] if more else []),
    ]


@click.command()
@options.path(required=False)
@options.only(NAMES, "NAME", "Some commands: push, 'push, diverged'")
@options.write("doc/measurements/brz_commands.md")
def command(path: Path | None, only: Sequence[str], write: bool) -> None:
    """Every remote command of brz, by stock Breezy over bzr:// and by our plugin over hpss://: calls, trips, bytes.

    Both sides have the same history (a bzr branch, or the first 3,000 revisions of a git repository or bundle; without
    PATH one of 300 revisions is made), the same links and a fresh connection for each command; the effect of each
    command is checked. Exit status 1 if one of ours takes more round trips than its budget, makes a VFS call, has a
    wrong effect, or, where it reads with nothing remembered, moves more bytes than stock. Takes about three minutes.

    \b
    bench ratchet
    bench ratchet ~/src/branch --only cat --only log
    """
    pages = options.Pages("ratchet", *([options.MEASUREMENTS / "brz_commands.md"] if write else []))
    found = measure(path, only)
    pages.write(markdown(found))
    click.echo(markdown(found))
    end(found.problems)
