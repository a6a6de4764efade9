"""Pushes beside clones that have stopped reading: they must not be slower, and the server must not hoard.

The clones are stock git's, through a link on which nothing moves after the first bytes: the server's socket fills and
stays full. Pushes with and without them take turns, so that a machine that grows slower looks the same in both.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.process import Cost, Watch
from bench.push import Pusher, revisions_of
from bench.report import Progress, Report, median, percentile
from netem.effects import Stall
from netem.proxy import Proxy
from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.histories import add_commit, copy, generate
from smartserver.cli.servers import Say, Server, Workspace, attempt, run
from smartserver.trace.text import size
from smartserver.vcs.git.plan import Revision

NAME = "project"
CONTENT = 64_000_000
"""Bytes a clone has to wait for where the history is made here: more than all socket buffers hold."""

FILE = 4_000_000
AFTER = 256 * 1024
"""Bytes after which a clone stalls."""

TURNS = 10
SLOWER = 1.1
"""Median with stalled clones to median without: what two halves of one undisturbed run differ by."""

GROWTH = 16_000_000
"""Bytes the server may have more with a stalled clone than without: one part of the body, and the socket's own."""

STALL_WITHIN = 300.0
CLEANING = 5.0
"""Seconds a clone that is ended may take to delete what it has."""


@dataclass(slots=True)
class Share:
    """The pushes of one side that were made alone, or beside the clones."""

    seconds: list[float] = field(default_factory=list)
    memory: int = 0
    """Bytes the server's processes had at most."""
    cpu: float = 0.0
    """CPU seconds of the server in all: what others do on the machine is not in them."""

    def add(self, seconds: Sequence[float], cost: Cost) -> None:
        """Some more pushes, and what they cost the server."""
        self.seconds += seconds
        self.memory = max(self.memory, cost.together)
        self.cpu += cost.cpu


@dataclass(slots=True)
class Times:
    """The pushes of one server."""

    alone: Share = field(default_factory=Share)
    beside: Share = field(default_factory=Share)


def run_stall(path: Path | None, clones: int, count: int, say: Say) -> tuple[Report, list[str]]:
    """Push `count` commits with and `count` without `clones` stalled clones of one repository; the table.

    Raises:
        CommandError: something failed.
    """
    progress = Progress(say)
    with Workspace("bench") as work, one_line():
        environment = work.environment("bench", {"gc.auto": "0"})
        source = work.folder / "source.git"
        if path is not None:
            copy(path, source, environment)
        else:
            progress.step(f"making {size(CONTENT)}")
            run(["git", "init", "--quiet", "--bare", str(source)], None, environment)
            files = {f"file{n}": os.urandom(FILE) for n in range(CONTENT // FILE)}
            add_commit(source, environment, "main", files)
        commits = work.folder / "commits.git"
        generate(commits, environment, ("pushed",), 2 * (count + TURNS) + 1)
        revisions = revisions_of(commits, environment, "--reverse", "pushed")
        server = work.start_ours()
        ours = Times()
        with Pusher(commits, server.url(NAME), environment) as pusher:

            def push(revision: Revision) -> float:
                pushed = pusher.push([revision], "refs/heads/pushed")
                if pushed.refused:
                    raise CommandError(f"a push was refused: {pushed.refused}")
                return pushed.seconds

            _measure(work, source, server, revisions, count, push, clones, ours, environment, progress)
        daemon = work.start_git_daemon(NAME)
        git = None
        if daemon is not None:
            git = Times()
            url = daemon.url(NAME)

            def git_push(revision: Revision) -> float:
                begun = time.perf_counter()
                done = attempt(
                    ["git", "push", "--quiet", url, f"{revision.id.hex()}:refs/heads/pushed"], commits, environment
                )
                if done.returncode:
                    raise CommandError(f"a push was refused: {done.stderr.strip()}")
                return time.perf_counter() - begun

            _measure(work, source, daemon, revisions, count, git_push, clones, git, environment, progress)
        report = Report(
            f"{count} pushes beside {clones} stalled clone{'s' * (clones != 1)} and {count} without; "
            "ours by the library, git's by `git push`"
        )
        _add(report, ours, git)
    return report, []


def _measure(
    work: Workspace,
    source: Path,
    server: Server,
    revisions: Sequence[Revision],
    count: int,
    push: Callable[[Revision], float],
    clones: int,
    times: Times,
    environment: Mapping[str, str],
    progress: Progress,
) -> None:
    label = server.scheme
    progress.step(f"{label}: first push")
    refspecs = ["refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*"]
    run(["git", "push", "--quiet", server.url(NAME), *refspecs], source, environment)
    waiting = iter(revisions)
    turns = min(TURNS, count)
    share = count // turns

    def pushes() -> tuple[list[float], Cost]:
        push(next(waiting))  # The first after a pause is slower, whatever is beside it.
        with Watch(server.pid) as watch:
            taken = [push(next(waiting)) for _ in range(share)]
        return taken, watch.cost

    for turn in range(turns):
        progress.step(f"{label}: turn {turn + 1} of {turns}")
        # Each is first as often as the other: a repository grows, and a machine changes its pace.
        for beside in (False, True) if turn % 2 else (True, False):
            if beside:
                with Stalled(work, server, clones, environment) as stalled:
                    times.beside.add(*pushes())
                    stalled.check()
            else:
                times.alone.add(*pushes())


class Stalled:
    """Clones that have stopped reading, while the context is open."""

    def __init__(self, work: Workspace, server: Server, clones: int, environment: Mapping[str, str]) -> None:
        self._folder = work.folder / "stalled"
        self._server = server
        self._clones = clones
        self._environment = environment
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Stalled:
        # What the link has not let through yet it does not take either: the server's socket is what fills.
        self._proxy = Proxy(0.0, self._server.address, down=[Stall(AFTER)], window=AFTER, rate=None)
        self._proxy.start()
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop()

    def check(self) -> None:
        """They are all still there.

        Raises:
            CommandError: one ended.
        """
        if any(process.poll() is not None for process in self._processes):
            raise CommandError("a clone that was to stall has ended: the repository is too small")

    def _start(self) -> None:
        url = self._server.url(NAME, self._proxy.port)
        for number in range(self._clones):
            command = ["git", "clone", "--quiet", "--bare", url, str(self._folder / str(number))]
            null = subprocess.DEVNULL
            self._processes.append(
                subprocess.Popen(
                    command, stdin=null, stdout=null, stderr=null, env=dict(self._environment), start_new_session=True
                )
            )
        deadline = time.monotonic() + STALL_WITHIN
        before = -1
        while True:
            self.check()
            taken = self._proxy.counts().bytes_down
            if taken == before and taken >= self._clones * AFTER:
                return
            if time.monotonic() > deadline:
                raise CommandError(f"the clones did not stall within {STALL_WITHIN:g} s: {taken} bytes came")
            before = taken
            time.sleep(0.1)

    def _stop(self) -> None:
        self._proxy.close()
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(CLEANING)
            except subprocess.TimeoutExpired:  # Git cleans up in its signal handler, and may lock itself up there.
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _add(report: Report, ours: Times, git: Times | None) -> None:
    def shown(times: Times | None, percent: float) -> str:
        if times is None:
            return ""
        alone, beside = (percentile(share.seconds, percent) * 1000 for share in (times.alone, times.beside))
        return f"{alone:.1f} / {beside:.1f} ms"

    for name, percent in (("median", 50), ("p90", 90), ("p99", 99), ("longest", 100)):
        report.add(f"a push alone / beside them: {name}", shown(ours, percent), shown(git, percent))

    def slower(times: Times) -> float:
        return median(times.beside.seconds) / median(times.alone.seconds)

    ok = slower(ours) <= SLOWER
    report.add("ratio of the medians", f"{slower(ours):.2f}", f"{slower(git):.2f}" if git else "", f"{SLOWER:g}", ok)

    def cpu(times: Times) -> str:
        alone, beside = (share.cpu / len(share.seconds) for share in (times.alone, times.beside))
        return f"{alone * 1000:.1f} / {beside * 1000:.1f} ms"

    report.add("CPU of the server, a push alone / beside them", cpu(ours), cpu(git) if git else "")

    def memory(times: Times) -> str:
        return f"{size(times.beside.memory)} ({(times.beside.memory - times.alone.memory) / 1e6:+.1f} MB)"

    ok = ours.beside.memory - ours.alone.memory <= GROWTH
    report.add("memory of the server, alone", size(ours.alone.memory), size(git.alone.memory) if git else "")
    report.add("memory of the server, beside them", memory(ours), memory(git) if git else "", f"+{size(GROWTH)}", ok)
