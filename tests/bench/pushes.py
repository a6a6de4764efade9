"""Thousands of one-commit pushes in a row: whether the store stays as good as one push would have made it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click

from bench import options
from bench.copies import folder_size
from bench.git_histories import copy
from bench.push import Pushed, Pusher, git_push, revisions_of
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


@click.command()
@options.path()
@options.number("-n count", 2000, "The oldest commits.")
@click.option(
    "--by",
    type=click.Choice(["library", "git"]),
    default="library",
    show_default=True,
    help="What pushes: the client library on one connection, or a `git push` each, beside git's own server.",
)
def command(path: Path, count: int, by: str) -> None:
    """One-commit pushes in a row, into an empty repository: what they leave, beside one push of the same.

    None may be refused, no base chain be deeper than 128; under 20 packs, at most 1.5 times the store of one push, and
    p99 of a push at most 2 times its median.

    \b
    bench pushes ~/src/project -n 200
    bench pushes history.bundle --by git
    """
    progress = Progress()
    with Workspace("bench") as work, one_line():
        environment = work.environment("bench", {"gc.auto": "0"})
        source = work.folder / "source.git"
        progress.step(f"copying {path.name}")
        branch = copy(path, source, environment)
        revisions = revisions_of(source, environment, "--topo-order", "--reverse", branch)[:count]
        server = work.start_ours()
        daemon = work.start_git_daemon(SINGLY, AT_ONCE) if by == "git" else None

        def git(url: str, revision: Revision) -> Pushed:
            return git_push(source, url, f"+{revision.id.hex()}:{REF}", environment)

        def by_git(server: Server) -> list[float]:
            return _push_each(partial(git, server.url(SINGLY)), revisions, progress, f"git push over {server.scheme}")

        def by_library() -> list[float]:
            with Pusher(source, server.url(SINGLY), environment) as pusher:
                return _push_each(lambda revision: pusher.push([revision], REF), revisions, progress, "pushes")

        times = by_git(server) if by == "git" else by_library()
        git_times = [] if daemon is None else by_git(daemon)
        progress.step("the same in one push")
        with Pusher(source, server.url(AT_ONCE), environment) as pusher:
            pusher.push(revisions, REF).check()
        if daemon is not None:
            git(daemon.url(AT_ONCE), revisions[-1]).check()
        report = Report(
            f"{len(revisions)} one-commit pushes in a row, by {'`git push`' if by == 'git' else 'the library'}: "
            f"the oldest of {branch}"
        )
        _add_times(report, times, git_times)
        _add_store(report, server, daemon)
    report.finish()


def _push_each(
    push: Callable[[Revision], Pushed], revisions: Sequence[Revision], progress: Progress, what: str
) -> list[float]:
    """Push each revision, and return the seconds of each push."""
    times: list[float] = []
    for revision in revisions:
        times.append(push(revision).check().seconds)
        progress.count(what, len(times), len(revisions))
    return times


def _add_times(report: Report, ours: Sequence[float], git: Sequence[float]) -> None:
    report.add("refused", "0", "0" if git else "", "0", True)  # The first refusal ends the measurement.

    def shown(values: Sequence[float], percent: float) -> str:
        return f"{percentile(values, percent) * 1000:.1f} ms" if values else ""

    for name, percent in (("median", 50), ("p90", 90)):
        report.add(f"a push: {name}", shown(ours, percent), shown(git, percent))
    ratios = [f"{percentile(v, 99) / median(v):.1f} x median" if v else "" for v in (ours, git)]
    ok = percentile(ours, 99) <= TIME_RATIO * median(ours)
    report.add(
        "a push: p99", f"{shown(ours, 99)} ({ratios[0]})", shown(git, 99) + (f" ({ratios[1]})" if git else ""),
        f"{TIME_RATIO:g} x median", ok,
    )  # fmt: skip
    report.add("a push: longest", shown(ours, 100), shown(git, 100))


def _add_store(report: Report, server: Server, daemon: Server | None) -> None:
    singly, at_once = look(server.served, SINGLY), look(server.served, AT_ONCE)
    deepest = f"{singly.deepest} ({at_once.deepest} by one push)"
    report.add("deepest base chain", deepest, "", f"{DEEPEST}", singly.deepest <= DEEPEST)
    report.add("packs at the end", str(singly.packs), "", f"under {PACKS}", singly.packs < PACKS)
    sizes = [f"{size:,}" for size in (singly.size, at_once.size)]
    ratio = singly.size / at_once.size
    git_sizes = [folder_size(daemon.served / name / "objects") if daemon else 0 for name in (SINGLY, AT_ONCE)]
    git = [f"{size:,}" if size else "" for size in git_sizes]
    report.add("store of one push, bytes", sizes[1], git[1])
    git_ratio = f" ({git_sizes[0] / git_sizes[1]:.2f} x)" if daemon else ""
    ok = ratio <= SIZE_RATIO
    report.add("store, bytes", f"{sizes[0]} ({ratio:.2f} x)", git[0] + git_ratio, f"{SIZE_RATIO:g} x", ok)
    report.add("on disk, with what is kept for a day", f"{folder_size(server.served / SINGLY):,}")
