"""A whole history pushed and brought back, ours beside another tool's: time, CPU, memory, bytes, size, and
completeness.

The other side serves and pushes from a repository packed as well as possible: its best case. A round of its own counts
the traffic on the link, so that the proxy does not slow down the timed rounds.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from bench.process import Cost, Watch, measure, until_idle
from bench.report import Progress, Report, median
from bench.servers import Server, Workspace, run
from netem.proxy import Proxy
from smartserver.trace.text import size

MEMORY = 300_000_000
"""The bar, in bytes, for the server and for the largest process of the client."""

_TRACED = re.compile(r"\((\d+\.\d+) ms in the server\)")

Answer = tuple[int, Sequence[str], Sequence[str]]
"""The exit status, and two kinds of output lines; the first kind is counted where answers differ."""


@dataclass(slots=True)
class Runs:
    """One operation of one side, over all rounds."""

    client: list[Cost] = field(default_factory=list)
    server: list[Cost] = field(default_factory=list)
    traced: list[float] = field(default_factory=list)
    """Seconds for which our server said that it was busy."""
    bytes_up: int = 0
    bytes_down: int = 0

    @property
    def seconds(self) -> float:
        return median([cost.seconds for cost in self.client])


@dataclass(slots=True)
class Side:
    """A server, and the program that speaks to it."""

    server: Server
    served: str = ""
    """The name of the repository to copy; empty: the one that was pushed last."""
    settings: Mapping[str, str] = field(default_factory=dict)
    push: Runs = field(default_factory=Runs)
    back: Runs = field(default_factory=Runs)
    pushed: str = ""
    """The name of the last repository that a push made on the server."""


class Copies:
    push, back = "push", "clone"
    bars: ClassVar[Sequence[float]] = (1.0, 1.0)
    """The bars of a push and of a clone, in seconds of the other side."""
    digits = 1
    """The number of digits of a ratio after the point."""
    questions: ClassVar[Sequence[str] | Mapping[str, Sequence[str]]]
    """The questions to ask of the source and of the copy, which must answer alike."""
    must_succeed = False
    """A question that fails on both counts as a difference, too."""
    fewer = False
    """Ours must take no more bytes than the other side."""
    stored = ("pack", "**/*.pack")
    """The files of a copy whose size is reported: a label and a pattern."""
    ours: Side
    theirs: Side
    source: Path

    def __init__(self, work: Workspace) -> None:
        self._work = work
        self._progress = Progress()

    def command(self, what: str, url: str, target: Path) -> list[str]:
        """Return the command of a push, or of a clone (or branch) into `target`."""
        raise NotImplementedError

    def environment(self, side: Side, user: str) -> Mapping[str, str]:
        """Return the environment of a command of a side."""
        raise NotImplementedError

    def answer(self, question: str, place: Path) -> Answer:
        """Return the answer of the source or of a copy to a question."""
        raise NotImplementedError

    def copied(self, side: Side) -> Path:
        return self._work.folder / f"{self.back}-{side.server.scheme}"

    def rounds(self, repeat: int) -> None:
        """Push and clone once to count bytes, then `repeat` times by the clock, the sides in turn."""
        for number in range(repeat + 1):
            name = f"pushed-{number}"
            for what in (self.push, self.back):
                for side in (self.ours, self.theirs):
                    self._progress.step(f"round {number}: {what} over {side.server.scheme}://")
                    if what == self.push:
                        side.pushed = name
                        self._run(side, side.push, what, name, counted=not number)
                    else:
                        shutil.rmtree(self.copied(side), ignore_errors=True)
                        self._run(side, side.back, what, side.served or name, counted=not number)

    def _run(self, side: Side, runs: Runs, what: str, name: str, *, counted: bool) -> None:
        server, environment, target = side.server, self.environment(side, what), self.copied(side)
        if counted:
            with Proxy(0.0, server.address) as proxy:
                run(self.command(what, server.url(name, proxy.port), target), self.source, environment)
                counts = proxy.take()
            runs.bytes_up, runs.bytes_down = counts.bytes_up, counts.bytes_down
            return
        until_idle(server.pid)  # It tidies what the round before has pushed.
        with Watch(server.pid) as watch:
            cost, said = measure(self.command(what, server.url(name), target), self.source, environment)
        runs.client.append(cost)
        runs.server.append(watch.cost)
        runs.traced += [float(found) / 1000 for found in _TRACED.findall(said)]

    def differences(self) -> list[str]:
        """Return the differences between the source and the last copy over our protocol."""
        found = []
        for question in self.questions:
            self._progress.step(f"comparing {question}")
            expected, got = (self.answer(question, place) for place in (self.source, self.copied(self.ours)))
            if expected != got or (self.must_succeed and got[0]):
                counts = f"{len(expected[1])} and {len(got[1])} lines, status {expected[0]} and {got[0]}"
                found.append(f"{question} of the source and of the {self.back} differ: {counts}")
        return found

    def report(self, report: Report) -> None:
        """Add the lines of both operations, and the sizes."""
        ours, theirs = self.ours, self.theirs
        runs = ((ours.push, theirs.push), (ours.back, theirs.back))
        for what, bar, (mine, other) in zip((self.push, self.back), self.bars, runs, strict=True):
            ratio = mine.seconds / other.seconds
            shown = f"{mine.seconds:.2f} s ({ratio:.{self.digits}f} x)"
            report.add(f"{what}: wall", shown, f"{other.seconds:.2f} s", f"{bar:g} x", ratio <= bar)
            add_costs(report, f"{what}: ", " of the client", mine.client, other.client)
            add_costs(report, f"{what}: ", " of the server", mine.server, other.server)
            if mine.traced:
                report.add(f"{what}: busy in the server, by its own count", f"{median(mine.traced):.2f} s")
            report.add(f"{what}: bytes up", size(mine.bytes_up), size(other.bytes_up))
            report.add(f"{what}: bytes down", size(mine.bytes_down), size(other.bytes_down))
            if self.fewer:
                both = [runs.bytes_up + runs.bytes_down for runs in (mine, other)]
                ratio = both[0] / both[1]
                shown = f"{size(both[0])} ({ratio:.2f} x)"
                report.add(f"{what}: bytes", shown, size(both[1]), "1 x", ratio <= 1)
        name, pattern = self.stored
        self.add_size(report, f"{name} after the {self.back}", pattern)
        self.add_sizes(report)
        stored = [folder_size(side.server.served / side.pushed) for side in (ours, theirs)]
        report.add("on the server", size(stored[0]), size(stored[1]))

    def add_size(self, report: Report, what: str, pattern: str = "**/*", bar: float | None = None) -> None:
        mine, other = (folder_size(self.copied(side), pattern) for side in (self.ours, self.theirs))
        limit = {} if bar is None else {"bar": f"{bar:g} x", "ok": mine / other <= bar}
        report.add(what, f"{size(mine)} ({mine / other:.2f} x)", size(other), **limit)  # type: ignore[arg-type]

    def add_sizes(self, report: Report) -> None:
        """Add the sizes that only some tools have."""


def add_costs(report: Report, what: str, whose: str, ours: Sequence[Cost], theirs: Sequence[Cost]) -> None:

    def both(shown: str, *figures: str, **judged: str | bool) -> None:
        report.add(f"{what}{shown}", *figures, **judged)  # type: ignore[arg-type]

    both(f"CPU{whose}", *(f"{median([cost.cpu for cost in costs]):.2f} s" for costs in (ours, theirs)))
    largest = [max(cost.largest for cost in costs) for costs in (ours, theirs)]
    bar, ok = size(MEMORY), largest[0] < MEMORY
    both(f"memory{whose}, largest process", size(largest[0]), size(largest[1]), bar=bar, ok=ok)
    both(f"memory{whose}, all together", *(size(max(cost.together for cost in costs)) for costs in (ours, theirs)))


def folder_size(folder: Path, pattern: str = "**/*") -> int:
    return sum(file.stat().st_size for file in folder.glob(pattern) if file.is_file())
