"""Thousands of one-commit pushes in a row: whether the store stays as good as one push would have made it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.history import folder_size
from bench.push import Pusher, revisions_of
from bench.report import Progress, Report, median, percentile
from bench.store import look
from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.histories import copy
from smartserver.cli.servers import Say, Server, Workspace, attempt
from smartserver.vcs.git.plan import Revision

DEEPEST = 128
PACKS = 20
SIZE_RATIO = 1.5
TIME_RATIO = 2.0

REF = "refs/heads/bench"
SINGLY, AT_ONCE = "one-by-one", "at-once"
_LOOK_EVERY = 25
"""Pushes between two looks at the number of packs."""


def run_pushes(path: Path, branch: str | None, count: int, by: str, repeat: int, say: Say) -> tuple[Report, list[str]]:
    """Push the oldest `count` commits of a branch one after another, then all at once elsewhere; the table.

    `by`: `library`, one process and one connection for all, or `git`, a `git push` each, beside git's own server.
    `repeat`: times all is done, each in a repository of its own; a push's time is then its shortest, so that what
    else the machine does is left out, and what the push itself costs is not.

    Raises:
        CommandError: something failed.
    """
    progress = Progress(say)
    with Workspace("bench") as work, one_line():
        environment = work.environment("bench", {"gc.auto": "0"})
        source = work.folder / "source.git"
        progress.step(f"copying {path.name}")
        current = copy(path, source, environment)
        revisions = revisions_of(source, environment, "--topo-order", "--reverse", branch or current)[:count]
        server = work.start_ours()
        names = [SINGLY if not number else f"{SINGLY}-{number}" for number in range(repeat)]
        daemon = work.start_git_daemon(*names, AT_ONCE) if by == "git" else None
        runs, git_runs = [], []
        most = 0
        for name in names:
            times, packs = _push_each(source, server, name, revisions, by, environment, progress)
            runs.append(times)
            most = max(most, packs)
            if daemon is not None:
                git_runs.append(_git_pushes(source, daemon, name, revisions, environment, progress)[0])
        progress.step("the same in one push")
        with Pusher(source, server.url(AT_ONCE), environment) as pusher:
            pushed = pusher.push(revisions, REF)
            if pushed.refused:
                raise CommandError(pushed.refused)
        if daemon is not None:
            _git_push(source, daemon.url(AT_ONCE), revisions[-1], environment)
        report = Report(
            f"{len(revisions)} one-commit pushes in a row, by {'`git push`' if by == 'git' else 'the library'}: "
            f"the oldest of {branch or current}{f', best of {repeat}' if repeat > 1 else ''}"
        )
        _add_times(report, _best(runs), _best(git_runs))
        _add_store(report, server, daemon, most)
    return report, []


def _best(runs: Sequence[Sequence[float]]) -> list[float]:
    return [min(each) for each in zip(*runs, strict=True)]


def _push_each(
    source: Path,
    server: Server,
    name: str,
    revisions: Sequence[Revision],
    by: str,
    environment: Mapping[str, str],
    progress: Progress,
) -> tuple[list[float], int]:
    """Seconds of each push, and the most packs seen meanwhile."""
    if by == "git":
        return _git_pushes(source, server, name, revisions, environment, progress)
    times: list[float] = []
    most = 0
    with Pusher(source, server.url(name), environment) as pusher:
        for revision in revisions:
            pushed = pusher.push([revision], REF)
            if pushed.refused:
                raise CommandError(f"push {len(times) + 1}, of {pushed.commit}, was refused: {pushed.refused}")
            times.append(pushed.seconds)
            most = max(most, _packs(server, name, len(times)))
            progress.count("pushes", len(times), len(revisions))
    return times, most


def _git_pushes(
    source: Path,
    server: Server,
    name: str,
    revisions: Sequence[Revision],
    environment: Mapping[str, str],
    progress: Progress,
) -> tuple[list[float], int]:
    times: list[float] = []
    most = 0
    for revision in revisions:
        times.append(_git_push(source, server.url(name), revision, environment))
        most = max(most, _packs(server, name, len(times)))
        progress.count(f"git push over {server.scheme}", len(times), len(revisions))
    return times, most


def _git_push(source: Path, url: str, revision: Revision, environment: Mapping[str, str]) -> float:
    start = time.perf_counter()
    done = attempt(["git", "push", "--quiet", url, f"+{revision.id.hex()}:{REF}"], source, environment)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise CommandError(f"the push of {revision.id.hex()} was refused: {done.stderr.strip()}")
    return seconds


def _packs(server: Server, name: str, number: int) -> int:
    if server.scheme != "hpss" or number % _LOOK_EVERY:
        return 0
    return look(server.served, name).packs


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
    tenth = max(1, len(ours) // 10)
    report.add("the first tenth, median", shown(ours[:tenth], 50), shown(git[:tenth], 50))
    report.add("the last tenth, median", shown(ours[-tenth:], 50), shown(git[-tenth:], 50))


def _add_store(report: Report, server: Server, daemon: Server | None, most: int) -> None:
    singly, at_once = look(server.served, SINGLY), look(server.served, AT_ONCE)
    deepest = f"{singly.deepest} ({at_once.deepest} by one push)"
    report.add("deepest base chain", deepest, "", f"{DEEPEST}", singly.deepest <= DEEPEST)
    report.add("packs at the end", str(singly.packs), "", f"under {PACKS}", singly.packs < PACKS)
    report.add("packs, most seen", str(most))  # Repacking comes after the answer: on a busy machine it lags.
    sizes = [f"{size:,}" for size in (singly.size, at_once.size)]
    ratio = singly.size / at_once.size
    git_sizes = [folder_size(daemon.served / name / "objects") if daemon else 0 for name in (SINGLY, AT_ONCE)]
    git = [f"{size:,}" if size else "" for size in git_sizes]
    report.add("store of one push, bytes", sizes[1], git[1])
    git_ratio = f" ({git_sizes[0] / git_sizes[1]:.2f} x)" if daemon else ""
    ok = ratio <= SIZE_RATIO
    report.add("store, bytes", f"{sizes[0]} ({ratio:.2f} x)", git[0] + git_ratio, f"{SIZE_RATIO:g} x", ok)
    report.add("on disk, with what is kept for a day", f"{folder_size(server.served / SINGLY):,}")
