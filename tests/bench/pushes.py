"""Thousands of one-commit pushes in a row: whether the store stays as good as one push would have made it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from bench import options
from bench.copies import folder_size
from bench.git_histories import copy
from bench.push import Pusher, revisions_of
from bench.report import Progress, Report, median, percentile
from bench.servers import Server, Workspace
from bench.store import look
from smartserver.cli.errors import one_line
from smartserver.vcs.git.plan import Revision

DEEPEST = 128
PACKS = 20
SIZE_RATIO = 1.5
TIME_RATIO = 2.0

REF = "refs/heads/bench"
SINGLY, AT_ONCE = "one-by-one", "at-once"
_LOOK_EVERY = 25
"""Pushes between two looks at the number of packs."""


@click.command()
@options.path()
@options.number("-n count", 2000, "The oldest commits.")
def command(path: Path, count: int) -> None:
    """One-commit pushes in a row by the client library, into an empty repository: what they leave, beside one push.

    None may be refused, no base chain be deeper than 128; under 20 packs, at most 1.5 times the store of one push, and
    p99 of a push at most 2 times its median.

    \b
    bench pushes ~/src/project -n 200
    """
    progress = Progress()
    with Workspace("bench") as work, one_line():
        environment = work.environment("bench", {"gc.auto": "0"})
        source = work.folder / "source.git"
        progress.step(f"copying {path.name}")
        branch = copy(path, source, environment)
        revisions = revisions_of(source, environment, "--topo-order", "--reverse", branch)[:count]
        server = work.start_ours()
        with Pusher(source, server.url(SINGLY), environment) as pusher:
            times, most = _push_each(pusher, server, revisions, progress)
        progress.step("the same in one push")
        with Pusher(source, server.url(AT_ONCE), environment) as pusher:
            pusher.push(revisions, REF).check()
        report = Report(f"{len(revisions)} one-commit pushes in a row: the oldest of {branch}")
        _add_times(report, times)
        _add_store(report, server, most)
    report.finish()


def _push_each(
    pusher: Pusher, server: Server, revisions: Sequence[Revision], progress: Progress
) -> tuple[list[float], int]:
    """Seconds of each push, and the most packs seen meanwhile."""
    times: list[float] = []
    most = 0
    for revision in revisions:
        times.append(pusher.push([revision], REF).check().seconds)
        if not len(times) % _LOOK_EVERY:
            most = max(most, look(server.served, SINGLY).packs)
        progress.count("pushes", len(times), len(revisions))
    return times, most


def _add_times(report: Report, times: Sequence[float]) -> None:
    report.add("refused", "0", "", "0", True)  # The first refusal ends the measurement.

    def shown(values: Sequence[float], percent: float) -> str:
        return f"{percentile(values, percent) * 1000:.1f} ms"

    for name, percent in (("median", 50), ("p90", 90)):
        report.add(f"a push: {name}", shown(times, percent))
    ratio = percentile(times, 99) / median(times)
    worst = f"{shown(times, 99)} ({ratio:.1f} x median)"
    report.add("a push: p99", worst, "", f"{TIME_RATIO:g} x median", ratio <= TIME_RATIO)
    report.add("a push: longest", shown(times, 100))
    tenth = max(1, len(times) // 10)
    report.add("the first tenth, median", shown(times[:tenth], 50))
    report.add("the last tenth, median", shown(times[-tenth:], 50))


def _add_store(report: Report, server: Server, most: int) -> None:
    singly, at_once = look(server.served, SINGLY), look(server.served, AT_ONCE)
    deepest = f"{singly.deepest} ({at_once.deepest} by one push)"
    report.add("deepest base chain", deepest, "", f"{DEEPEST}", singly.deepest <= DEEPEST)
    report.add("packs at the end", str(singly.packs), "", f"under {PACKS}", singly.packs < PACKS)
    report.add("packs, most seen", str(most))  # Repacking comes after the answer: on a busy machine it lags.
    ratio = singly.size / at_once.size
    report.add("store of one push, bytes", f"{at_once.size:,}")
    shown = f"{singly.size:,} ({ratio:.2f} x)"
    report.add("store, bytes", shown, "", f"{SIZE_RATIO:g} x", ratio <= SIZE_RATIO)
    report.add("on disk, with what is kept for a day", f"{folder_size(server.served / SINGLY):,}")
