"""Several writers at once: every push that was acknowledged must be there, and the store must be sound."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.push import Pushed, Writer
from bench.report import Progress, Report, percentile
from bench.store import damages, lacking, look
from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.histories import generate
from smartserver.cli.servers import Say, Server, Workspace, attempt, run

REFS = 4
"""Refs of each writer."""

PACKS = 20

Work = Sequence[tuple[str, str]]
"""Commits, and the refs they are pushed to, in order."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the pushes of all writers."""

    pushed: Sequence[Pushed]
    seconds: float


def run_writers(writers: int, count: int, say: Say) -> tuple[Report, list[str]]:
    """Let `writers` processes push `count` times each, to refs of their own, in four ways; the table, what is wrong.

    Raises:
        CommandError: something failed.
    """
    progress = Progress(say)
    problems: list[str] = []
    report = Report(f"{writers} writers x {count} pushes to {REFS} refs each, in one repository, at once")
    with Workspace("bench") as work, one_line():
        environment = work.environment("bench", {"gc.auto": "0"})
        source = work.folder / "source.git"
        tasks = _make(source, writers, count, environment)
        server = work.start_ours()
        daemon = work.start_git_daemon("git-push")
        progress.step("writers on one connection each, to one server")
        urls = [server.url("one-server")] * writers
        one = _library(work, source, tasks, urls, environment)
        progress.step("the same, to a server each, on one store")
        servers = [server, *[work.start_ours(server.served) for _ in range(writers - 1)]]
        urls = [each.url("server-each") for each in servers]
        several = _library(work, source, tasks, urls, environment)
        for name, outcome in (("one-server", one), ("server-each", several)):
            label = name.replace("-", " ")
            _add_speed(report, label, outcome, None)
            _check(report, label, server, name, outcome, problems)
        progress.step("the same, a `git push` each, to one server")
        ours = _git(source, tasks, server.url("git-push"), "git push over hpss", environment, progress)
        git = (
            _git(source, tasks, daemon.url("git-push"), "git push over git", environment, progress) if daemon else None
        )
        _add_speed(report, "git push", ours, git)
        _check(report, "git push", server, "git-push", ours, problems)
        if daemon is not None and git is not None:
            _check_git(daemon, git, environment, problems)
    return report, problems


def _make(source: Path, writers: int, count: int, environment: Mapping[str, str]) -> list[Work]:
    """A history for each ref, and each writer's pushes: its refs in turn, each one commit further."""
    each = -(-count // REFS)
    names = [[f"writer-{writer}-{ref}" for ref in range(REFS)] for writer in range(writers)]
    generate(source, environment, [name for mine in names for name in mine], each)
    tasks: list[Work] = []
    for mine in names:
        commits = [run(["git", "rev-list", "--reverse", name], source, environment).split() for name in mine]
        tasks.append([(commits[n % REFS][n // REFS], f"refs/heads/{mine[n % REFS]}") for n in range(count)])
    return tasks


def _library(
    work: Workspace, source: Path, tasks: Sequence[Work], urls: Sequence[str], environment: Mapping[str, str]
) -> Outcome:
    writers = [Writer(source, url, task, environment) for url, task in zip(urls, tasks, strict=True)]
    for writer in writers:
        work.later(writer.stop)
    for writer in writers:
        writer.get_ready()
    start = time.monotonic()
    for writer in writers:
        writer.go()
    pushed = [push for writer in writers for push in writer.finish()]
    return Outcome(pushed, time.monotonic() - start)


def _git(
    source: Path, tasks: Sequence[Work], url: str, what: str, environment: Mapping[str, str], progress: Progress
) -> Outcome:
    pushed: list[Pushed] = []
    over = threading.Event()

    def write(task: Work) -> None:
        for commit, ref in task:
            if over.is_set():
                return
            begun = time.perf_counter()
            done = attempt(["git", "push", "--quiet", url, f"{commit}:{ref}"], source, environment)
            seconds = time.perf_counter() - begun
            refused = f"status {done.returncode}: {done.stderr.strip()}" if done.returncode else ""
            pushed.append(Pushed(commit, ref, seconds, refused))

    threads = [threading.Thread(target=write, args=(task,), name="writer") for task in tasks]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
                progress.count(what, len(pushed), sum(map(len, tasks)))
    finally:
        over.set()
        for thread in threads:
            thread.join()
    return Outcome(pushed, time.monotonic() - start)


def _add_speed(report: Report, label: str, ours: Outcome, git: Outcome | None) -> None:
    def speed(outcome: Outcome | None) -> str:
        return "" if outcome is None else f"{len(outcome.pushed) / outcome.seconds:.0f}"

    def milliseconds(outcome: Outcome | None, percent: float) -> str:
        if outcome is None:
            return ""
        return f"{percentile([push.seconds for push in outcome.pushed], percent) * 1000:.0f} ms"

    report.add(f"{label}: pushes a second", speed(ours), speed(git))
    for name, percent in (("median", 50), ("p99", 99), ("longest", 100)):
        report.add(f"{label}: a push, {name}", milliseconds(ours, percent), milliseconds(git, percent))


def last_acknowledged(pushed: Sequence[Pushed]) -> dict[str, str]:
    """Where each ref must be: its last push that was not refused. Each ref has one writer, so order is known."""
    return {push.ref: push.commit for push in pushed if not push.refused}


def _check(report: Report, label: str, server: Server, name: str, outcome: Outcome, problems: list[str]) -> None:
    refused = [push for push in outcome.pushed if push.refused]
    problems += [f"{label}: {push.ref}: {push.refused}" for push in refused]
    report.add(f"{label}: refused", str(len(refused)), "", "0", not refused)
    stored = look(server.served, name)
    wrong = [ref for ref, tip in last_acknowledged(outcome.pushed).items() if stored.refs.get(ref) != tip]
    problems += [f"{label}: {ref} is at {stored.refs.get(ref)}, not where the last push put it" for ref in wrong]
    gone = lacking(server.served, name, [push.commit for push in outcome.pushed if not push.refused])
    problems += [f"{label}: commit {commit} was acknowledged and is not there" for commit in gone]
    lost = len(wrong) + len(gone)
    report.add(f"{label}: acknowledged and not there", str(lost), "", "0", not lost)
    found = damages(server.served, name)
    problems += [f"{label}: {problem}" for problem in found]
    report.add(f"{label}: verify", f"{len(found)} damaged", "", "0 damaged", not found)
    report.add(f"{label}: packs at the end", str(stored.packs), "", f"under {PACKS}", stored.packs < PACKS)


def _check_git(daemon: Server, outcome: Outcome, environment: Mapping[str, str], problems: list[str]) -> None:
    listing = run(["git", "for-each-ref", "--format=%(refname) %(objectname)"], daemon.served / "git-push", environment)
    refs = dict(line.split(" ") for line in listing.splitlines())
    for ref, tip in last_acknowledged(outcome.pushed).items():
        if refs.get(ref) != tip:
            problems.append(f"git: {ref} is at {refs.get(ref)}, not where the last push put it")
    refused = [push for push in outcome.pushed if push.refused]
    if refused:
        raise CommandError(f"git: {refused[0].ref}: {refused[0].refused}")
