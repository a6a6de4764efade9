"""Trees and logs read from a server, ours beside Subversion: the same line of revisions on both, packed and unpacked.

Our client has the agent, as its user has.

Hot: the server stays, and what is measured was asked for before. Cold: the server is restarted, and no page of the
repository's files is in memory; the kernel still knows their names. What a server opens and reads is counted by strace,
in runs that are not timed.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import click

from bench import linear, options
from bench.links import agent
from bench.process import Cost, measure
from bench.report import Progress, Report, median
from bench.servers import Server, Workspace, run, serving
from smartserver.cli.errors import CommandError
from smartserver.trace.text import size

RATIO: Final = 1.0
"""Times Subversion's seconds that ours may take."""

READ: Final = 1.1
"""Times the repository's bytes that its verification may read from the disk."""

LIMIT: Final = "100"
"""Revisions of a log with their paths, of a long history."""

PUSHES: Final = 20
"""By which our repository comes to be there."""

LOOKED_AT: Final = 5
"""Random revisions whose trees are compared, besides the newest."""

TRIES: Final = 5
"""To have the kernel drop pages."""

SVNSERVE: Final = (
    "svnserve", "-d", "--foreground", "-T", *linear.CACHE, "-c", "0", "--cache-revprops", "yes", "--client-speed",
    "1000", "--block-read", "yes",
)  # fmt: skip

TRACED: Final = ("strace", "-ff", "-y", "-s", "0", "-e", "trace=openat,read,pread64,preadv,lseek,sendfile", "-o")

_OPENED: Final = re.compile(r"openat\(.* = \d+<(.*)>$", re.MULTILINE)
_READ: Final = re.compile(r"(?:read|pread64|preadv)\(\d+<(.*?)>.* = (\d+)$", re.MULTILINE)
_SENT: Final = re.compile(r"sendfile\(.*?, \d+<(.*?)>.* = (\d+)$", re.MULTILINE)
_SOUGHT: Final = re.compile(r"lseek\(\d+<(.*?)>", re.MULTILINE)

EXPORT, QUIET, VERBOSE, VERIFY, DUMP, LOAD = "export", "log -q", "log -v", "verify", "dump", "load"
LATEST = f"log -v -n {LIMIT}"

UNSERVED = (VERIFY, DUMP, LOAD)
"""What is done to the repository's folder, beside any server."""


class Reads(NamedTuple):
    """What was read of a repository's files."""

    files: int = 0
    reads: int = 0
    size: int = 0
    seeks: int = 0

    def __sub__(self, other: Reads) -> Reads:
        return Reads(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))

    def __str__(self) -> str:
        return f"{self.files:,}, {self.reads:,}, {size(self.size)}, {self.seeks:,}"


@dataclass
class Side:
    """A server and the commands of its client; in braces are the places of a run."""

    name: str
    """The scheme of its URLs."""
    served: Path
    serve: Callable[[Path, str, int], Sequence[str]]
    commands: Mapping[str, Sequence[str]]
    start: Sequence[str]
    """Nothing but a start of the client."""

    def words(self, what: str, server: Server | None, packing: str, made: Path, dump: Path) -> list[str]:
        places = {
            "url": "" if server is None else server.url(packing),
            "folder": str(self.served / packing),
            "made": str(made),
            "dump": str(dump),
            "limit": LIMIT,
        }
        return [word.format(**places) for word in self.commands[what]]


def our_side(served: Path) -> Side:
    log = ("smartserver", "log", "{url}")
    commands = {
        EXPORT: ("smartserver", "export", "{url}", "{made}"),
        QUIET: (*log, "-q"),
        VERBOSE: (*log, "-v"),
        LATEST: (*log, "-v", "-n", "{limit}"),
        VERIFY: ("smartserver", "verify", "{folder}"),
        DUMP: ("smartserver", "dump", "{folder}", "{made}"),
        LOAD: ("smartserver", "load", "{dump}", "{made}"),
    }

    def serve(served: Path, host: str, port: int) -> Sequence[str]:
        return serving(served, host, port, "--memory-cache-size", linear.CACHE[1])

    return Side("hpss", served, serve, commands, ("smartserver", "ls", "--help", "hpss://localhost/"))


def subversion(served: Path, configuration: Path) -> Side:
    def serve(served: Path, host: str, port: int) -> Sequence[str]:
        return *SVNSERVE, "--root", str(served), "--listen-host", host, "--listen-port", str(port)

    asked = ("--non-interactive", "--config-dir", str(configuration))
    log = ("svn", "log", *asked, "{url}")
    commands = {
        EXPORT: ("svn", "export", "-q", *asked, "{url}", "{made}"),
        QUIET: (*log, "-q"),
        VERBOSE: (*log, "-v"),
        LATEST: (*log, "-v", "--limit", "{limit}"),
        VERIFY: ("svnadmin", "verify", "-q", *linear.CACHE, "{folder}"),
        DUMP: ("svnadmin", "dump", "-q", *linear.CACHE, "-F", "{made}", "{folder}"),
        LOAD: ("svnadmin", "load", "-q", *linear.CACHE, "-F", "{dump}", "{made}"),
    }
    return Side("svn", served, serve, commands, ("svn", "--version", "-q"))


class Content:
    """Both sides with the same revisions, each in the repositories `packed` and `unpacked`."""

    def __init__(self, work: Workspace, make: Callable[[Path, Mapping[str, str]], object]) -> None:
        self.work = work
        self._progress = Progress()
        here = work.environment("bench") | {"LC_ALL": "C.UTF-8"}  # svn writes names as the locale has them.
        self.environment = {**here, **work.enter(agent(run, here))}
        self.git = work.folder / "source.git"
        self._progress.step("making the history")
        make(self.git, self.environment)
        self.trees = linear.trees(self.git, self.environment)
        self.sides = [our_side(self._folder("ours")), subversion(self._folder("theirs"), work.folder / "svn")]
        self._fill()

    def _folder(self, name: str) -> Path:
        folder = self.work.folder / name
        folder.mkdir()
        return folder

    def _fill(self) -> None:
        mine, theirs = (side.served for side in self.sides)
        self._progress.step("pushing it")
        revisions = run(["git", "rev-list", "--reverse", "main"], self.git, self.environment).split()
        with self.served(self.sides[0]) as server:
            for part in range(1, PUSHES + 1):
                tip = revisions[max(len(revisions) * part // PUSHES - 1, 0)]
                push = ["git", "push", "--quiet", server.url("unpacked"), f"{tip}:refs/heads/main"]
                run(push, self.git, self.environment)
        self._progress.step("converting it")
        linear.to_svn(self.git, theirs / "unpacked", self.environment)
        for side, pack in ((mine, ("smartserver", "pack")), (theirs, ("svnadmin", "pack", "-q", *linear.CACHE))):
            shutil.copytree(side / "unpacked", side / "packed")
            run([*pack, str(side / "packed")], None, self.environment)

    def differences(self) -> list[str]:
        """The revisions whose trees are not the same on both sides."""
        found = []
        numbers = {
            len(self.trees),
            *random.Random(len(self.trees)).sample(range(1, len(self.trees) + 1), min(LOOKED_AT, len(self.trees))),
        }
        revisions = run(["git", "rev-list", "--reverse", "main"], self.git, self.environment).split()
        made = self.work.folder / "compared"
        for number in sorted(numbers):
            self._progress.step(f"comparing revision {number}")
            theirs = f"file://{self.sides[1].served / 'packed'}"
            mine = f"{self.sides[0].served / 'packed'}@{revisions[number - 1]}"
            for words in (["svn", "export", "-q", "-r", str(number), theirs], ["smartserver", "export", mine]):
                run([*words, str(made)], None, self.environment)
                if linear.tree_of(made, self.git, self.environment) != self.trees[number - 1]:
                    found.append(f"revision {number} of {words[0]} is not the tree of git's")
                shutil.rmtree(made)
        return found

    @contextmanager
    def served(self, side: Side, *before: str) -> Iterator[Server]:
        """A server of a side, which ends with the context; `before`: of its command."""
        with Workspace("served") as work:

            def serve(host: str, port: int) -> Sequence[str]:
                return [*before, *side.serve(side.served, host, port)]

            yield work.start(side.name, side.served, serve, self.environment)

    def _needed(self, side: Side, what: str, *before: str) -> AbstractContextManager[Server | None]:
        """The server that a row asks, if it asks one."""
        return nullcontext() if what in UNSERVED else self.served(side, *before)

    def rows(self, report: Report, names: Sequence[str], repeat: int) -> None:
        for what in names:
            for packing in ("packed", "unpacked"):
                for heat, seconds in (("hot", self._hot), ("cold", self._cold)):
                    self._progress.step(f"{what}, {packing}, {heat}")
                    mine, theirs = map(median, seconds(what, packing, repeat))
                    ratio = mine / theirs
                    shown = f"{mine:.2f} s ({ratio:.2f} x)"
                    label = f"{what}, {packing}, {heat}"
                    report.add(label, shown, f"{theirs:.2f} s", f"{RATIO:g} x", ratio <= RATIO)
                counted = [self._counted(side, what, packing) for side in self.sides]
                for heat, (ours, svn) in zip(("first", "second"), zip(*counted, strict=True), strict=True):
                    report.both(f"{what}, {packing}, {heat}: opened, reads, bytes, seeks", str, ours, svn)

    def disk(self, report: Report) -> None:
        """What a verification reads from the disk, beside the size of the repository."""
        for packing in ("packed", "unpacked"):
            self._progress.step(f"{VERIFY}, {packing}, from the disk")
            found = []
            for side in self.sides:
                folder = side.served / packing
                drop_pages([folder])
                read = self._run(side, None, VERIFY, packing).disk
                found.append((read, read / sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())))
            label = f"{VERIFY}, {packing}, cold: read from the disk, and times the repository"
            mine, theirs = (f"{size(read)} ({ratio:.2f} x)" for read, ratio in found)
            # Where there is no disk, nothing was measured.
            report.add(label, mine, theirs, f"{READ:g} x", found[0][1] <= READ if found[0][0] else None)

    def loads(self, report: Report) -> None:
        """A dump loaded into a new repository, once: Subversion takes minutes for some thousand revisions."""
        self._progress.step(LOAD)
        mine, theirs = [self._run(side, None, LOAD, "packed").seconds for side in self.sides]
        ratio = mine / theirs
        report.add(f"{LOAD}, once", f"{mine:.2f} s ({ratio:.2f} x)", f"{theirs:.2f} s", f"{RATIO:g} x", ratio <= RATIO)

    def starts(self, report: Report, repeat: int) -> None:
        """What starting the clients takes."""
        found = [[measure(side.start, None, self.environment)[0].seconds for side in self.sides] for _ in range(repeat)]
        mine, theirs = (f"{median(each):.3f} s" for each in zip(*found, strict=True))
        report.add("start of the client alone", mine, theirs)

    def _hot(self, what: str, packing: str, repeat: int) -> tuple[list[float], ...]:
        found: tuple[list[float], ...] = ([], [])
        with self._needed(self.sides[0], what) as mine, self._needed(self.sides[1], what) as theirs:
            for number in range(repeat + 1):
                for side, server, times in zip(self.sides, (mine, theirs), found, strict=True):
                    times += [self._run(side, server, what, packing).seconds] * bool(number)
        return found

    def _cold(self, what: str, packing: str, repeat: int) -> tuple[list[float], ...]:
        found: tuple[list[float], ...] = ([], [])
        for _ in range(repeat):
            for side, times in zip(self.sides, found, strict=True):
                drop_pages([side.served / packing, self._dump(side)])
                with self._needed(side, what) as server:
                    times.append(self._run(side, server, what, packing).seconds)
        return found

    def _run(self, side: Side, server: Server | None, what: str, packing: str, *before: str) -> Cost:
        made = self.work.folder / "made"
        words = [*before, *side.words(what, server, packing, made, self._dump(side))]
        if what == LOAD and side is self.sides[1]:
            run(["svnadmin", "create", *linear.SVN_FORMAT, str(made)], None, self.environment)
        try:
            return measure(words, None, self.environment)[0]
        finally:
            shutil.rmtree(made, ignore_errors=True)
            made.unlink(missing_ok=True)

    def _dump(self, side: Side) -> Path:
        return self.work.folder / f"{side.name}.dump"

    def make_dumps(self) -> None:
        """What is loaded."""
        for side in self.sides:
            run(side.words(DUMP, None, "packed", self._dump(side), self._dump(side)), None, self.environment)

    def _counted(self, side: Side, what: str, packing: str) -> tuple[Reads, Reads]:
        """What a server that was just started reads the first and the second time."""
        with Workspace("traced") as work:
            traced = [*TRACED, str(work.folder / "trace")]
            # A server is traced from beside it (-D): strace would leave it behind when it is stopped.
            with self._needed(side, what, traced[0], "-D", *traced[1:]) as server:
                before = self._reads(work.folder, side)
                found = []
                for _ in range(2):
                    self._run(side, server, what, packing, *(traced if server is None else []))
                    now = self._reads(work.folder, side)
                    found.append(now - before)
                    before = now
        return found[0], found[1]

    def _reads(self, folder: Path, side: Side) -> Reads:
        inside = f"{side.served}/"
        total = Reads()
        for file in folder.glob("trace.*"):
            text = file.read_text(encoding="utf-8", errors="replace")
            sizes = [int(got) for path, got in [*_READ.findall(text), *_SENT.findall(text)] if path.startswith(inside)]
            opened, sought = (
                sum(path.startswith(inside) for path in calls.findall(text)) for calls in (_OPENED, _SOUGHT)
            )
            total = Reads(total.files + opened, total.reads + len(sizes), total.size + sum(sizes), total.seeks + sought)
        return total


def drop_pages(places: Sequence[Path]) -> None:
    """Have the kernel forget what is in files, and see that it did.

    Raises:
        CommandError: it has not.
    """
    files = [file for place in places for file in (place.rglob("*") if place.is_dir() else [place]) if file.is_file()]
    os.sync()
    left = 0
    for _ in range(TRIES):
        for file in files:
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
        left = _in_memory(files)
        if not left:
            return
    raise CommandError(f"{left} bytes of {places[0]} stay in memory")


def _in_memory(files: Sequence[Path]) -> int:
    words = ["fincore", "--bytes", "--noheadings", "--output", "RES", "--"]
    names = b"\0".join(map(os.fsencode, files))
    done = subprocess.run(["xargs", "-0", *words], input=names, capture_output=True, check=True)
    return sum(map(int, done.stdout.split()))


@click.command()
@options.path(required=False)
@click.option("-n", "count", type=click.IntRange(1), help="Of a history that is made here: its revisions, no dump.")
@options.number("--repeat", 5, "Timed runs of each.")
def command(path: Path | None, count: int | None, repeat: int) -> None:
    """Export, log, verify, dump and load beside Subversion: seconds of the client, and what the server reads.

    Both have the first parents of PATH's main branch (without PATH: of a small history made here), in Subversion's
    format 7; its server has threads, 1 GB of cache and reads blocks. Ours comes by 20 pushes. Every run is a new
    process of the client. Needs strace, fincore and Subversion.

    \b
    bench content ~/src/project
    bench content -n 100000 --repeat 3
    """
    if path is not None and count is not None:
        raise click.UsageError("-n makes a history of its own: name no PATH")
    made = count is not None

    def make(git: Path, environment: Mapping[str, str]) -> None:
        if count is not None:
            linear.write(git, environment, linear.long_history(count))
        else:
            linear.straighten(path, git, environment)

    with Workspace("bench") as work:
        content = Content(work, make)
        if not made:
            content.make_dumps()
        problems = content.differences()
        version = run(["svn", "--version", "-q"], None, content.environment).strip()
        report = Report(f"{len(content.trees)} revisions, loopback, medians of {repeat}", f"svn {version}")
        report.problems = problems
        content.starts(report, repeat)
        content.rows(report, [EXPORT, QUIET, LATEST] if made else [EXPORT, QUIET, VERBOSE, VERIFY, DUMP], repeat)
        if not made:
            content.disk(report)
            content.loads(report)
    report.finish()
