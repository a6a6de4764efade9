"""Pushes beside clones that have stopped reading: they must not be slower, and the server must not hoard.

The clones are stock git's, through a link on which nothing moves after the first bytes: the server's socket fills and
stays full. Pushes with and without them take turns, so that a machine that grows slower looks the same in both.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import click

from bench import options
from bench.process import Cost, Watch
from bench.push import Pushed, Pusher, git_push, revisions_of
from bench.report import Progress, Report, median, percentile
from netem.effects import Stall
from netem.proxy import Proxy
from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.histories import add_commit, copy, generate
from smartserver.cli.servers import Server, Workspace, run
from smartserver.trace.text import size
from smartserver.vcs.git.plan import Revision

NAME = "project"
REF = "refs/heads/pushed"
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


class Times(NamedTuple):
    alone: Share
    beside: Share


@click.command()
@options.path(required=False)
@options.number("-n count", 100, "Pushes with and without.", 4)
@options.number("--clones", 1, "Clones that have stalled.")
def command(path: Path | None, count: int, clones: int) -> None:
    """Pushes beside a clone that has stopped reading: no slower, and the server's memory stays flat.

    The clone is of PATH, which must be larger than all socket buffers together; without it 64 MB are made.

    \b
    bench stall
    bench stall --clones 32
    """
    progress = Progress()
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

        def measured(server: Server, push: Callable[[Revision], Pushed]) -> Times:
            return _measure(work, source, server, revisions, count, push, clones, environment, progress)

        server = work.start_ours()
        with Pusher(commits, server.url(NAME), environment) as pusher:
            ours = measured(server, lambda revision: pusher.push([revision], REF))
        git, daemon = None, work.start_git_daemon(NAME)
        if daemon is not None:
            url = daemon.url(NAME)
            git = measured(daemon, lambda revision: git_push(commits, url, f"{revision.id.hex()}:{REF}", environment))
        report = Report(
            f"{count} pushes beside {clones} stalled clone{'s' * (clones != 1)} and {count} without; "
            "ours by the library, git's by `git push`"
        )
        _add(report, ours, git)
    report.finish()


def _measure(
    work: Workspace, source: Path, server: Server, revisions: Sequence[Revision], count: int,
    push: Callable[[Revision], Pushed], clones: int, environment: Mapping[str, str], progress: Progress,
) -> Times:  # fmt: skip
    times = Times(Share(), Share())
    label = server.scheme
    progress.step(f"{label}: first push")
    refspecs = ["refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*"]
    run(["git", "push", "--quiet", server.url(NAME), *refspecs], source, environment)
    waiting = iter(revisions)
    turns = min(TURNS, count)
    share = count // turns

    def pushes() -> tuple[list[float], Cost]:
        push(next(waiting)).check()  # The first after a pause is slower, whatever is beside it.
        with Watch(server.pid) as watch:
            taken = [push(next(waiting)).check().seconds for _ in range(share)]
        return taken, watch.cost

    for turn in range(turns):
        progress.step(f"{label}: turn {turn + 1} of {turns}")
        # Each is first as often as the other: a repository grows, and a machine changes its pace.
        for beside in (False, True) if turn % 2 else (True, False):
            if beside:
                with stalled(work, server, clones, environment) as check:
                    times.beside.add(*pushes())
                    check()
            else:
                times.alone.add(*pushes())
    return times


@contextmanager
def stalled(
    work: Workspace, server: Server, clones: int, environment: Mapping[str, str]
) -> Iterator[Callable[[], None]]:
    """Clones that have stopped reading; what is given fails if one has ended."""
    folder, null = work.folder / "stalled", subprocess.DEVNULL
    processes: list[subprocess.Popen[bytes]] = []

    def check() -> None:
        if any(process.poll() is not None for process in processes):
            raise CommandError("a clone that was to stall has ended: the repository is too small")

    try:
        # What the link has not let through yet it does not take either: the server's socket is what fills.
        with Proxy(0.0, server.address, down=[Stall(AFTER)], window=AFTER, rate=None) as proxy:
            for number in range(clones):
                command = ["git", "clone", "--quiet", "--bare", server.url(NAME, proxy.port), str(folder / str(number))]
                clone = subprocess.Popen(
                    command, stdin=null, stdout=null, stderr=null, env=environment, start_new_session=True
                )
                processes.append(clone)
            deadline = time.monotonic() + STALL_WITHIN
            before, taken = -1, 0
            while taken != before or taken < clones * AFTER:
                if time.monotonic() > deadline:
                    raise CommandError(f"the clones did not stall within {STALL_WITHIN:g} s: {taken} bytes came")
                time.sleep(0.1)
                check()
                before, taken = taken, proxy.counts().bytes_down
            yield check
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(CLEANING)
            except subprocess.TimeoutExpired:  # Git cleans up in its signal handler, and may lock itself up there.
                process.kill()
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _add(report: Report, ours: Times, git: Times | None) -> None:
    def two(alone: float, beside: float) -> str:
        return f"{alone * 1000:.1f} / {beside * 1000:.1f} ms"

    def ratio(times: Times) -> float:
        return median(times.beside.seconds) / median(times.alone.seconds)

    def grown(times: Times) -> int:
        return times.beside.memory - times.alone.memory

    for name, percent in (("median", 50), ("p90", 90), ("p99", 99), ("longest", 100)):

        def shown(times: Times, percent: float = percent) -> str:
            return two(*(percentile(share.seconds, percent) for share in (times.alone, times.beside)))

        report.both(f"a push alone / beside them: {name}", shown, ours, git)
    slow = ratio(ours) <= SLOWER
    report.both("ratio of the medians", lambda times: f"{ratio(times):.2f}", ours, git, f"{SLOWER:g}", slow)
    report.both(
        "CPU of the server, a push alone / beside them",
        lambda times: two(*(share.cpu / len(share.seconds) for share in (times.alone, times.beside))), ours, git,
    )  # fmt: skip
    report.both("memory of the server, alone", lambda times: size(times.alone.memory), ours, git)
    report.both(
        "memory of the server, beside them",
        lambda times: f"{size(times.beside.memory)} ({grown(times) / 1e6:+.1f} MB)",
        ours, git, f"+{size(GROWTH)}", grown(ours) <= GROWTH,
    )  # fmt: skip
