"""What the ratchets of brz and of hg share: each command by the stock tool and by ours, from the same state, over the
same link; and the page of what differs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill

import click
from bench import options
from bench.report import circumstances, end, listed, table
from bench.servers import Serve, Workspace
from git_sides import RTT, CommandRow, Done, Served

from netem.proxy import Proxy
from netem.units import plural
from smartserver.trace.text import size

VFS = re.compile(r"\((\d+) vfs\)")
"""Matches the count of VFS calls in the line that a tool writes at the end of a command, once for each connection."""


class StockServed(Served):
    """A stock server with a link before it."""

    def __init__(
        self, work: Workspace, scheme: str, root: Path, serve: Serve, environment: Mapping[str, str] | None = None
    ) -> None:
        root.mkdir()
        self.root = root
        self.scheme = scheme
        self.proxy = work.enter(Proxy(RTT, work.start(scheme, root, serve, environment).address))

    def url(self, path: str) -> str:
        return f"{self.scheme}://127.0.0.1:{self.proxy.port}/{path}"


Ran = tuple[Done, Mapping[str, object]]
"""The results of a command, and what users and servers have then."""


@dataclass(frozen=True)
class Figures:
    """The cost of a command."""

    rounds: int
    """Round trips on the link without those of handshakes."""
    handshakes: int
    bytes: int
    """Those of both directions."""
    vfs: int = 0


def figures(done: Done) -> Figures:
    """Return the figures of a command, from the traffic on the link and from its standard error."""
    counts, vfs = done.counts, sum(map(int, VFS.findall(done.err)))
    return Figures(counts.rounds_without_handshake, counts.handshake_rounds, counts.bytes_up + counts.bytes_down, vfs)


@dataclass(frozen=True)
class Compared:
    name: str
    stock: Figures
    ours: Figures
    problems: Sequence[str] = ()
    """Wrong outcomes, and excesses of our cost."""

    @property
    def differs(self) -> bool:
        """True if ours takes more than one round trip, more bytes than stock, or has a problem."""
        return bool(self.ours.rounds > 1 or self.ours.bytes > self.stock.bytes or self.problems)


def excesses(ours: Figures, stock: Figures, budget: int, times: float | None) -> Iterator[str]:
    """Yield each excess of our cost over its budget, or over so many times the bytes of stock."""
    if ours.rounds > budget:
        yield f"{plural(ours.rounds, 'round trip')}, budget {budget}"
    if ours.handshakes > 1:
        yield f"{ours.handshakes} handshakes"
    if ours.vfs:
        yield plural(ours.vfs, "VFS call")
    if times is not None and ours.bytes > stock.bytes * times:
        yield f"{size(ours.bytes)}, stock {size(stock.bytes)}"


@dataclass
class Ratchet:
    tool: str
    """The tool and its release."""
    scheme: str
    """The scheme of the stock URLs."""
    about: str
    """A description of the history."""
    rows: list[Compared] = field(default_factory=list)
    when: str = field(default_factory=circumstances)

    def add(self, row: CommandRow, stock: Ran, ours: Ran, budget: int, times: float | None, *more: str) -> None:
        """Compare the results of a command, and what users and servers have then; `more`: problems of its output."""
        (theirs, expected), (mine, found) = stock, ours
        problems = list(more)
        if not mine.status == theirs.status == row.status:
            problems.append(f"status {mine.status}, stock {theirs.status}, expected {row.status}: {mine.said.strip()}")
        for name in sorted(found.keys() | expected.keys()):
            if found.get(name) != expected.get(name):
                problems.append(f"{name} is {found.get(name)!s:.200}, with stock {expected.get(name)!s:.200}")
        problems += excesses(figures(mine), figures(theirs), budget, times)
        self.rows.append(Compared(row.name, figures(theirs), figures(mine), problems))

    def finish(self, pages: options.Pages) -> None:
        """Write the page, and print all."""
        pages.write(self.page())
        click.echo(f"{self.table(*[[each] for each in self.rows])}\n\n{listed(self.notes())}")
        end([f"{each.name}: {problem}" for each in self.rows for problem in each.problems])

    def page(self) -> str:
        """Return the commands that differ in a table, those of the same cost in one line; the others by their names."""
        groups: dict[object, list[Compared]] = {}
        for each in self.rows:
            if each.differs:
                groups.setdefault((each.ours.rounds, size(each.ours.bytes), *each.problems), []).append(each)
        others = [each.name for each in self.rows if not each.differs]
        paragraph = fill(f"The other {len(others)}, in one round trip and no more bytes: {'; '.join(others)}.", 120)
        return f"{self.table(*groups.values())}\n\n{paragraph}\n\n{listed(self.notes())}"

    def table(self, *groups: Sequence[Compared]) -> str:
        """Return a table with a line for each group of commands."""
        head = ["command", f"{self.scheme} trips", "bytes", "hpss:// trips", "bytes", ""]
        return table(head, [_cells(group) for group in groups])

    def notes(self) -> list[str]:
        """Return notes on the circumstances of the measurement, and its results."""
        ours, stock = [each.ours for each in self.rows], [each.stock for each in self.rows]
        return [
            f"History: {self.about}. {self.tool} on both sides; {self.when}",
            f"{plural(len(self.rows), 'command')}: {plural(sum(cost.rounds for cost in ours), 'round trip')} over "
            f"hpss:// where {self.scheme} takes {sum(cost.rounds for cost in stock)}, without those of handshakes; "
            f"{plural(sum(cost.vfs for cost in ours), 'VFS call')}",
        ]


def _cells(group: Sequence[Compared]) -> list[str]:
    """Return the names of commands, the cost of each side, and the problems."""
    cells = ["; ".join(each.name for each in group)]
    for costs in ([each.stock for each in group], [each.ours for each in group]):
        cells += [_span(str, [cost.rounds for cost in costs]), _span(size, [cost.bytes for cost in costs])]
    return [*cells, "; ".join(f"MISSED: {problem}" for problem in group[0].problems)]


def _span(shown: Callable[[int], str], counts: Sequence[int]) -> str:
    least, most = shown(min(counts)), shown(max(counts))
    return least if least == most else f"{least} to {most}"
