"""Several writers at once: every acknowledged push must be in the repository, and the store must be sound."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from bench import options
from bench.git_histories import generate
from bench.push import Pushed, finish, git_push, start_writer, tell
from bench.report import Progress, Report, percentile
from bench.servers import Server, Workspace, run
from bench.store import damages, lacking, look
from smartserver.cli.errors import CommandError, one_line

REFS = 4
"""The number of refs of each writer."""

PACKS = 20

Work = Sequence[tuple[str, str]]
"""Commits, and the refs to push them to, in order."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of the pushes of all writers."""

    pushed: Sequence[Pushed]
    seconds: float

    @property
    def refused(self) -> list[Pushed]:
        return [push for push in self.pushed if push.refused]

    @property
    def speed(self) -> float:
        """The pushes per second."""
        return len(self.pushed) / self.seconds

    def misplaced(self, refs: Mapping[str, str]) -> list[str]:
        """Return the refs that are not at the commit of their last push."""
        # Its last push that was not refused. Each ref has one writer, so order is known.
        last = {push.ref: push.commit for push in self.pushed if not push.refused}
        wrong = [ref for ref, tip in last.items() if refs.get(ref) != tip]
        return [f"{ref} is at {refs.get(ref)}, not where the last push put it" for ref in wrong]


@click.command()
@options.number("-n count", 50, "Pushes of each writer.")
@options.number("--writers", 4, "Processes that push.")
def command(count: int, writers: int) -> None:
    """Several processes push at once to one repository: through one server, and through a server each.

    Every acknowledged push must be there, and the repository must be sound.

    \b
    bench writers
    bench writers -n 10 --writers 16
    """
    progress = Progress()
    report = Report(f"{writers} writers x {count} pushes to {REFS} refs each, in one repository, at once")
    with Workspace("bench") as work, one_line():
        environment = work.environment("bench", {"gc.auto": "0"})
        source = work.folder / "source.git"
        tasks = make_tasks(source, writers, count, environment)
        server = work.start_ours()
        daemon = work.start_git_daemon("git-push")
        progress.step("writers on one connection each, to one server")
        one = at_once(work, source, tasks, [server.url("one-server")] * writers, environment)
        progress.step("the same, to a server each, on one store")
        servers = [server, *[work.start_ours(server.served) for _ in range(writers - 1)]]
        several = at_once(work, source, tasks, [each.url("server-each") for each in servers], environment)
        for name, outcome in (("one-server", one), ("server-each", several)):
            _add_speed(report, name.replace("-", " "), outcome, None)
            _check(report, name.replace("-", " "), server, name, outcome)
        progress.step("the same, a `git push` each, to one server")
        ours, *git = [
            _git(source, tasks, each.url("git-push"), f"git push over {each.scheme}", environment, progress)
            for each in (server, daemon)
            if each is not None
        ]
        _add_speed(report, "git push", ours, git[0] if git else None)
        _check(report, "git push", server, "git-push", ours)
        if daemon is not None:
            listing = ["git", "for-each-ref", "--format=%(refname) %(objectname)"]
            refs = run(listing, daemon.served / "git-push", environment).splitlines()
            report.problems += [f"git: {each}" for each in git[0].misplaced(dict(line.split(" ") for line in refs))]
            if refused := git[0].refused:
                raise CommandError(f"git: {refused[0].ref}: {refused[0].refused}")
    report.finish()


def make_tasks(source: Path, writers: int, count: int, environment: Mapping[str, str]) -> list[Work]:
    """Return a history for each ref, and each writer's pushes: to its refs in turn, each one commit further."""
    each = -(-count // REFS)
    names = [[f"writer-{writer}-{ref}" for ref in range(REFS)] for writer in range(writers)]
    generate(source, environment, [name for mine in names for name in mine], each)
    tasks: list[Work] = []
    for mine in names:
        commits = [run(["git", "rev-list", "--reverse", name], source, environment).split() for name in mine]
        tasks.append([(commits[n % REFS][n // REFS], f"refs/heads/{mine[n % REFS]}") for n in range(count)])
    return tasks


def at_once(
    work: Workspace, source: Path, tasks: Sequence[Work], urls: Sequence[str], environment: Mapping[str, str]
) -> Outcome:
    """Run one writer for each URL, each on one connection, all at the same time."""
    writers: list[subprocess.Popen[str]] = []

    def stop() -> None:
        for writer in writers:
            if writer.poll() is None:
                writer.kill()
                writer.communicate()

    work.later(stop)
    for url, task in zip(urls, tasks, strict=True):
        writers.append(start_writer(source, url, task, environment))
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()  # It has read what it is to push.
    start = time.monotonic()
    for writer in writers:
        tell(writer, "go")
    pushed = [push for writer in writers for push in finish(writer)]
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
            pushed.append(git_push(source, url, f"{commit}:{ref}", environment))

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
    def speed(outcome: Outcome) -> str:
        return f"{outcome.speed:.0f}"

    report.both(f"{label}: pushes a second", speed, ours, git)
    for name, percent in (("median", 50), ("p99", 99), ("longest", 100)):

        def milliseconds(outcome: Outcome, percent: float = percent) -> str:
            return f"{percentile([push.seconds for push in outcome.pushed], percent) * 1000:.0f} ms"

        report.both(f"{label}: a push, {name}", milliseconds, ours, git)


def _check(report: Report, label: str, server: Server, name: str, outcome: Outcome) -> None:
    stored = look(server.served, name)
    wrong = outcome.misplaced(stored.refs)
    gone = lacking(server.served, name, [push.commit for push in outcome.pushed if not push.refused])
    lost = len(wrong) + len(gone)
    found = damages(server.served, name)
    problems = [
        *(f"{push.ref}: {push.refused}" for push in outcome.refused),
        *wrong,
        *(f"commit {commit} was acknowledged and is not there" for commit in gone),
        *found,
    ]
    report.problems += [f"{label}: {problem}" for problem in problems]
    report.add(f"{label}: refused", str(len(outcome.refused)), "", "0", not outcome.refused)
    report.add(f"{label}: acknowledged and not there", str(lost), "", "0", not lost)
    report.add(f"{label}: verify", f"{len(found)} damaged", "", "0 damaged", not found)
    report.add(f"{label}: packs at the end", str(stored.packs), "", f"under {PACKS}", stored.packs < PACKS)
