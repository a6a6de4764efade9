"""Round trips of each git operation: counted on the link, and as the slope of wall time."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from bench import options
from bench.comparison import Comparison, Operation, Row, Side
from bench.report import Report, Runs, say

FIRST_CONTACT = 3
"""Trips of a push to an existing repository that the client does not know: the handshake, a question or a guess, and
one more with the knowledge from the answer."""

SLOPE, TOLERANCE = 2.0, 0.05
RTTS = (0.2, 0.6, 1.0)
"""Seconds; under 100 ms the noise of starting processes is as large as the measured time."""

SMALL = 1_000_000
"""Bytes of history up to which a slope is judged: the CPU time of a larger history hides a trip."""


class AllOperations(Comparison):
    """The operations of the demo and some others, among them first contact without a cache."""

    def operations(self) -> list[Operation]:
        return [
            *super().operations(),
            Operation("push two tags", self.push("bench-light", "bench-annotated"), before=self.make_tags),
            Operation("delete a branch", self.push("--delete", "demo-topic"), before=self.delete_here),
            Operation("no cache: push one commit", self.push(self.branch), self.commit_one_and_forget, FIRST_CONTACT),
        ]

    def make_tags(self, side: Side) -> None:
        self.git(side, 0, "tag", "bench-light")
        self.git(side, 0, "tag", "-a", "-m", "annotated", "bench-annotated")

    def delete_here(self, side: Side) -> None:
        """Delete the branch here too, so that both have the same at the end."""
        self.git(side, 0, "branch", "--quiet", "-D", "demo-topic")

    def commit_one_and_forget(self, side: Side) -> None:
        """Commit, and make the user and the repository forget all remotes."""
        self.commit_one(side)
        shutil.rmtree(Path(side.environments[0]["XDG_CACHE_HOME"]) / "smartserver", ignore_errors=True)
        for name in self.git(side, 0, "for-each-ref", "--format=%(refname)", "refs/remotes").split():
            self.git(side, 0, "update-ref", "--no-deref", "-d", name)


@click.command()
@options.path(required=False)
@options.rtts()
@options.number("--repeat", 5, "Runs at each RTT.")
def command(path: Path | None, rtts: Sequence[float], repeat: int) -> None:
    """Round trips of git operations on a fresh connection.

    Round trips are counted by a proxy, and measured as the slope of wall time over the RTT (200, 600 and 1000 ms). The
    slope must be 2.00 +- 0.05 if PATH is under 1 MB; without PATH a history is made. The shortest run at each RTT
    counts, because other load only makes a run longer. Takes about 12 minutes; with --rtt 100ms --repeat 1 trips are
    only counted, in half a minute.

    \b
    bench trips
    bench trips ~/src/project --rtt 100ms --repeat 1
    """
    rtts = rtts or RTTS
    found: dict[str, list[tuple[float, Row]]] = {}
    report = Report("")
    small = True
    for turn in range(repeat):
        with ExitStack() as stack:
            # Git is run in the first turn alone: its slopes rest on fewer points.
            comparisons = [stack.enter_context(AllOperations(path, rtt, None, say, with_git=not turn)) for rtt in rtts]
            # Each operation at every RTT before the next: a machine that grows slower does not look like a slope.
            for rows in zip(*[comparison.rows() for comparison in comparisons], strict=True):
                for rtt, row in zip(rtts, rows, strict=True):
                    found.setdefault(row.operation, []).append((rtt, row))
                    small &= max(row.ours.bytes_up, row.ours.bytes_down) < SMALL
                say(f"  {rows[0].operation}")
            report.problems += [problem for comparison in comparisons for problem in comparison.problems]
            report.title = report.title or comparisons[0].title.partition(", link")[0]
    report.title += f"; fresh connections, RTT {', '.join(f'{rtt:g}' for rtt in rtts)} s, {repeat} times"
    for runs in found.values():
        _judge(report, runs, small=small)
    report.finish()


def _judge(report: Report, runs: Sequence[tuple[float, Row]], *, small: bool) -> None:
    """Add the runs of one operation; `runs`: RTT and row of each."""
    row = runs[0][1]
    ours = Runs([(rtt, each.ours) for rtt, each in runs])
    git = Runs([(rtt, each.git) for rtt, each in runs if each.git is not None])
    slope = ours.slope
    bar, ok = str(row.budget), ours.most <= row.budget
    # Of what takes 3 trips "never one more" is asked, which the count says.
    if slope is not None and small and row.budget == SLOPE:
        bar += f", {SLOPE:.2f} +- {TOLERANCE}"
        ok &= abs(slope.rounds - SLOPE) <= TOLERANCE
    report.add(row.operation, _shown(ours), _shown(git) if git.costs else "-", bar, ok)


def _shown(runs: Runs) -> str:
    slope = runs.slope
    return f"{runs.most}" + (f", {slope.rounds:.2f} (residual {slope.residual * 1000:.0f} ms)" if slope else "")
