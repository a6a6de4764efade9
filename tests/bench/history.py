"""A whole history pushed and cloned back, ours beside git's: time, CPU, memory, bytes, size, and whether all is there.

Git serves and pushes from a copy repacked with `-adf`: its best case. What goes over the link is counted in a round of
its own, so that the proxy costs nothing in those that are timed.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.process import Cost, Watch, measure
from bench.report import Progress, Report, median
from netem.proxy import Proxy
from smartserver.cli.errors import CommandError
from smartserver.cli.histories import copy
from smartserver.cli.servers import Say, Server, Workspace, attempt, run
from smartserver.trace.text import size
from smartserver.vcs.git.insert import Inserter
from smartserver.vcs.git.read import plan
from smartserver.vcs.git.repository import GitRepository

PUSH_RATIO, CLONE_RATIO, SIZE_RATIO, VERIFY_RATIO = 6.0, 3.0, 1.5, 2.0
MEMORY = 300_000_000
"""Bytes: what the server, and the largest process of the client, may have."""

SOURCE = "source.git"
_TRACED = re.compile(r"\((\d+\.\d+) ms in the server\)")


@dataclass(slots=True)
class Runs:
    """One operation of one side, over all rounds."""

    client: list[Cost] = field(default_factory=list)
    server: list[Cost] = field(default_factory=list)
    traced: list[float] = field(default_factory=list)
    """Seconds our server said it was busy."""
    bytes_up: int = 0
    bytes_down: int = 0

    @property
    def seconds(self) -> float:
        """Wall time, the median."""
        return median([cost.seconds for cost in self.client])

    def cpu(self, costs: Sequence[Cost]) -> float:
        """CPU seconds, the median."""
        return median([cost.cpu for cost in costs])


@dataclass(slots=True)
class _Side:
    server: Server
    push: Runs = field(default_factory=Runs)
    clone: Runs = field(default_factory=Runs)
    pushed: str = ""
    """The repository on the server that the last push made."""


class History:
    """The measurement; its folder is removed with the workspace."""

    def __init__(self, path: Path, work: Workspace, progress: Progress) -> None:
        self._work = work
        self._progress = progress
        self._path = path
        self._environment = work.environment("bench") | {"SMARTSERVER_DEBUG": "hpss"}
        served = work.folder / "served-git"
        served.mkdir()
        self.source = served / SOURCE

    def prepare(self, names: Iterable[str]) -> None:
        """The repacked source, and both servers.

        Raises:
            CommandError: the path is no repository, or `git daemon` is not installed.
        """
        self._progress.step(f"copying and repacking {self._path.name}")
        copy(self._path, self.source, self._environment)
        run(["git", "repack", "-adfq"], self.source, self._environment)
        daemon = self._work.start_git_daemon(*names)
        if daemon is None:
            raise CommandError("`git daemon` is not installed: there is nothing to compare with")
        self.ours, self.git = _Side(self._work.start_ours()), _Side(daemon)

    def round(self, number: int, *, counted: bool) -> None:
        """Push and clone once each, ours and git's in turn; `counted`: on a link that counts, not timed."""
        name = f"pushed-{number}"
        for side in (self.ours, self.git):
            label = side.server.scheme
            self._progress.step(f"round {number}: first push over {label}://")
            refspecs = ["refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*"]
            self._run(side, side.push, name, ["git", "push", "--quiet", "URL", *refspecs], counted)
            side.pushed = name
        for side in (self.ours, self.git):
            label = side.server.scheme
            self._progress.step(f"round {number}: clone over {label}://")
            # Git's clone is from the repacked source: what its push left on the server would serve it worse.
            served = name if side is self.ours else SOURCE
            target = self.cloned(label)
            shutil.rmtree(target, ignore_errors=True)
            self._run(side, side.clone, served, ["git", "clone", "--quiet", "--bare", "URL", str(target)], counted)

    def cloned(self, label: str) -> Path:
        """The last clone over a scheme."""
        return self._work.folder / f"cloned-{label}"

    def _run(self, side: _Side, runs: Runs, name: str, command: list[str], counted: bool) -> None:
        server = side.server

        def with_url(url: str) -> list[str]:
            return [url if word == "URL" else word for word in command]

        if counted:
            with Proxy(0.0, server.address) as proxy:
                run(with_url(server.url(name, proxy.port)), self.source, self._environment)
                counts = proxy.take()
            runs.bytes_up, runs.bytes_down = counts.bytes_up, counts.bytes_down
            return
        with Watch(server.pid) as watch:
            ran = measure(with_url(server.url(name)), self.source, self._environment)
        runs.client.append(ran.cost)
        runs.server.append(watch.cost)
        runs.traced += [float(found) / 1000 for found in _TRACED.findall(ran.errors)]

    def verify(self) -> tuple[Cost, Cost]:
        """Check what was pushed, as `smartserver verify` does, and its clone, as `git fsck --full` does."""
        self._progress.step("verify, and git fsck of a clone")
        pushed = str(self.ours.server.served / self.ours.pushed)
        ours = measure([sys.executable, "-m", "smartserver.cli.main", "verify", pushed], None, self._environment)
        fsck = ["git", "fsck", "--full", "--no-progress"]
        return ours.cost, measure(fsck, self.cloned("git"), self._environment).cost

    # -- whether all is there

    def differences(self) -> list[str]:
        """What the last clone over our protocol has otherwise than the source."""
        found = []
        cloned = self.cloned("hpss")
        questions = {
            "refs": ["for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/tags"],
            "rev-list --objects --all": ["rev-list", "--objects", "--all"],
            "fsck --strict": ["fsck", "--strict", "--no-progress"],
        }
        for what, command in questions.items():
            self._progress.step(f"comparing {what}")
            answers = []
            for repository in (self.source, cloned):
                done = attempt(["git", *command], repository, self._environment)
                # What is dangling or listed comes in the order of the packs, which is not the same.
                answers.append((done.returncode, sorted(done.stdout.splitlines()), sorted(done.stderr.splitlines())))
            if answers[0] != answers[1]:
                expected, got = answers
                counts = f"{len(expected[1])} and {len(got[1])} lines, status {expected[0]} and {got[0]}"
                found.append(f"git {what} of the source and of the clone differ: {counts}")
        return found

    # -- where the time goes

    def stages(self) -> list[tuple[str, float, float, float]]:
        """The client's work alone, without network or server: what, wall, CPU of Python, CPU of git, in seconds."""
        found = []
        with GitRepository(self.source, self._environment) as repository, tempfile.TemporaryFile() as spool:
            self._progress.step("where the time goes: making segments")
            with _Stage() as listing:
                made = plan(repository, repository.refs().values(), ())
            lengths = []
            with _Stage() as writing:
                for segment in made.segments():
                    spool.write(segment)
                    lengths.append(len(segment))
                spool.flush()
                repository.close()  # So that what its processes used counts.
            found.append(("push, client: list revisions", *listing.cost))
            found.append(("push, client: read objects, make segments", *writing.cost))
            del made
            self._progress.step("where the time goes: taking segments in")
            target = self._work.folder / "stage.git"
            run(["git", "init", "--quiet", "--bare", str(target)], None, self._environment)
            with GitRepository(target, self._environment) as empty, _Stage() as inserting:
                Inserter(empty, []).insert(_pieces(spool.fileno(), lengths))
            found.append(("clone, client: check, deltify, write the pack", *inserting.cost))
        return found


class _Stage:
    """Wall time, and CPU of this process and of its children, while the context is open."""

    def __enter__(self) -> _Stage:
        self._before = self._now()
        self.cost = (0.0, 0.0, 0.0)
        return self

    def __exit__(self, *exc: object) -> None:
        after = self._now()
        self.cost = (after[0] - self._before[0], after[1] - self._before[1], after[2] - self._before[2])

    def _now(self) -> tuple[float, float, float]:
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.monotonic(), own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def _pieces(file: int, lengths: Sequence[int]) -> Iterator[bytes]:
    at = 0
    for length in lengths:
        yield os.pread(file, length, at)
        at += length


def run_history(path: Path, repeat: int, say: Say, *, stages: bool = True) -> tuple[Report, list[str]]:
    """Measure; the table, and what is wrong with the result.

    Raises:
        CommandError: something failed.
    """
    with Workspace("bench") as work:
        history = History(path, work, Progress(say))
        history.prepare([f"pushed-{number}" for number in range(repeat + 1)])
        history.round(0, counted=True)
        for number in range(1, repeat + 1):
            history.round(number, counted=False)
        problems = history.differences()
        report = _report(history, repeat)
        add_verify(report, *history.verify())
        if stages:
            for what, wall, python, git in history.stages():
                report.add(f"  {what}", f"{wall:.2f} s, CPU {python:.2f} + {git:.2f} of children")
    return report, problems


def add_costs(report: Report, what: str, mine: Runs, theirs: Runs) -> None:
    """The processor time and memory of both ends."""
    for who, mine_, theirs_ in (("client", mine.client, theirs.client), ("server", mine.server, theirs.server)):
        report.add(f"{what}: CPU of the {who}", f"{mine.cpu(mine_):.2f} s", f"{theirs.cpu(theirs_):.2f} s")
        largest = max(cost.largest for cost in mine_)
        report.add(
            f"{what}: memory of the {who}, largest process", size(largest),
            size(max(cost.largest for cost in theirs_)), size(MEMORY), largest < MEMORY,
        )  # fmt: skip
        report.add(
            f"{what}: memory of the {who}, all together", size(max(cost.together for cost in mine_)),
            size(max(cost.together for cost in theirs_)),
        )  # fmt: skip


def add_verify(report: Report, ours: Cost, git: Cost) -> None:
    """What it takes to check all of it on the server, and in a clone."""
    ratio = ours.seconds / git.seconds
    mine, theirs = f"{ours.seconds:.2f} s ({ratio:.1f} x)", f"{git.seconds:.2f} s"
    report.add("verify, git: fsck --full of a clone", mine, theirs, f"{VERIFY_RATIO:g} x", ratio <= VERIFY_RATIO)
    report.add("verify: CPU", f"{ours.cpu:.2f} s", f"{git.cpu:.2f} s")
    report.add(
        "verify: memory, largest process", size(ours.largest), size(git.largest), size(MEMORY), ours.largest < MEMORY
    )
    report.add("verify: memory, all together", size(ours.together), size(git.together))


def _report(history: History, repeat: int) -> Report:
    ours, git = history.ours, history.git
    environment = history._environment
    commits = run(["git", "rev-list", "--count", "--all"], history.source, environment).strip()
    objects = len(run(["git", "rev-list", "--objects", "--all"], history.source, environment).splitlines())
    report = Report(f"{commits} commits, {objects} objects, loopback, median of {repeat}; git from a source repacked")
    for what, mine, theirs, bar in (
        ("first push", ours.push, git.push, PUSH_RATIO),
        ("clone", ours.clone, git.clone, CLONE_RATIO),
    ):
        ratio = mine.seconds / theirs.seconds
        report.add(
            f"{what}: wall",
            f"{mine.seconds:.2f} s ({ratio:.1f} x)",
            f"{theirs.seconds:.2f} s",
            f"{bar:g} x",
            ratio <= bar,
        )
        add_costs(report, what, mine, theirs)
        if mine.traced:
            report.add(f"{what}: busy in the server, by its own count", f"{median(mine.traced):.2f} s")
        report.add(f"{what}: bytes up", size(mine.bytes_up), size(theirs.bytes_up))
        report.add(f"{what}: bytes down", size(mine.bytes_down), size(theirs.bytes_down))
    packs = [folder_size(history.cloned(label), "**/*.pack") for label in ("hpss", "git")]
    report.add("pack after the clone", f"{size(packs[0])} ({packs[0] / packs[1]:.2f} x)", size(packs[1]))
    whole = [folder_size(history.cloned(label)) for label in ("hpss", "git")]
    ratio = whole[0] / whole[1]
    ok = ratio <= SIZE_RATIO
    report.add(".git after the clone", f"{size(whole[0])} ({ratio:.2f} x)", size(whole[1]), f"{SIZE_RATIO:g} x", ok)
    stored = folder_size(ours.server.served / ours.pushed)
    report.add("on the server", size(stored), size(folder_size(git.server.served / git.pushed)))
    return report


def folder_size(folder: Path, pattern: str = "**/*") -> int:
    """Bytes of the files below a folder."""
    return sum(file.stat().st_size for file in folder.glob(pattern) if file.is_file())
