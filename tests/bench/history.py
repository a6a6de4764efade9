"""A whole git history pushed and cloned back, ours beside git's."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import click

from bench import options
from bench.copies import Answer, Copies, Side, add_costs
from bench.git_histories import copy
from bench.process import measure
from bench.report import Report
from bench.servers import Workspace, attempt, run
from smartserver.cli.errors import CommandError

SIZE_RATIO, VERIFY_RATIO = 1.5, 2.0

SOURCE = "source.git"


class History(Copies):
    """The copies of a git history. Git serves and pushes from a copy repacked with `-adf`."""

    push = "first push"
    bars = (6.0, 3.0)
    questions: ClassVar[Mapping[str, Sequence[str]]] = {
        "git refs": ("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/tags"),
        "git rev-list --objects --all": ("rev-list", "--objects", "--all"),
        "git fsck --strict": ("fsck", "--strict", "--no-progress"),
    }

    def __init__(self, path: Path, work: Workspace, names: Iterable[str]) -> None:
        super().__init__(work)
        self._environment = work.environment("bench") | {"SMARTSERVER_DEBUG": "hpss"}
        served = work.folder / "served-git"
        served.mkdir()
        self.source = served / SOURCE
        self._progress.step(f"copying and repacking {path.name}")
        copy(path, self.source, self._environment)
        self.git("repack", "-adfq")
        daemon = work.start_git_daemon(*names)
        if daemon is None:
            raise CommandError("`git daemon` is not installed: there is nothing to compare with")
        # Git's clone is from the repacked source: what its push left on the server would serve it worse.
        self.ours, self.theirs = Side(work.start_ours()), Side(daemon, SOURCE)

    def git(self, *words: str) -> str:
        """Run git on the source, and return its output."""
        return run(["git", *words], self.source, self._environment)

    def command(self, what: str, url: str, target: Path) -> list[str]:
        if what == self.push:
            return ["git", "push", "--quiet", url, "refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*"]
        return ["git", "clone", "--quiet", "--bare", url, str(target)]

    def environment(self, side: Side, user: str) -> Mapping[str, str]:
        return self._environment

    def answer(self, question: str, place: Path) -> Answer:
        done = attempt(["git", *self.questions[question]], place, self._environment)
        # What is dangling or listed comes in the order of the packs, which is not the same.
        return done.returncode, sorted(done.stdout.splitlines()), sorted(done.stderr.splitlines())

    def add_sizes(self, report: Report) -> None:
        self.add_size(report, ".git after the clone", bar=SIZE_RATIO)

    def verify(self, report: Report) -> None:
        """Check the pushed repository with `smartserver verify`, and its clone with `git fsck --full`."""
        self._progress.step("verify, and git fsck of a clone")
        pushed = str(self.ours.server.served / self.ours.pushed)
        command = [sys.executable, "-m", "smartserver.cli.main", "verify", pushed]
        ours = measure(command, None, self._environment)[0]
        command = ["git", "fsck", "--full", "--no-progress"]
        git = measure(command, self.copied(self.theirs), self._environment)[0]
        ratio = ours.seconds / git.seconds
        mine, theirs = f"{ours.seconds:.2f} s ({ratio:.1f} x)", f"{git.seconds:.2f} s"
        report.add("verify, git: fsck --full of a clone", mine, theirs, f"{VERIFY_RATIO:g} x", ratio <= VERIFY_RATIO)
        add_costs(report, "verify: ", "", [ours], [git])


@click.command()
@options.path()
@options.number("--repeat", 3, "Timed rounds.")
def command(path: Path, repeat: int) -> None:
    """First push of all of PATH and a clone of it: time, CPU, memory, bytes and sizes.

    Git pushes from and serves a copy repacked with -adf. The clone over hpss:// must equal the source: every ref,
    `git rev-list --objects --all`, output and status of `git fsck --strict`.

    \b
    bench history ~/src/project
    bench history history.bundle --repeat 1
    """
    with Workspace("bench") as work:
        history = History(path, work, [f"pushed-{number}" for number in range(repeat + 1)])
        history.rounds(repeat)
        commits = history.git("rev-list", "--count", "--all").strip()
        objects = len(history.git("rev-list", "--objects", "--all").splitlines())
        title = f"{commits} commits, {objects} objects, loopback, median of {repeat}; git from a source repacked"
        report = Report(title)
        report.problems = history.differences()
        history.report(report)
        history.verify(report)
    report.finish()
