"""The histories to read, each in repositories of ours, of Subversion's formats 6 and 7, and of git, packed and not; and
the commands of each side's user. They are made once; a history is there completely or not at all."""

from __future__ import annotations

import functools
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import click
from needs import require

from bench import options
from bench.links import agent
from bench.papers import linear
from bench.papers.results import Results, with_options
from bench.process import Cost, measure
from bench.servers import Server, Workspace, run, serving
from smartserver.cli.errors import CommandError

PUSHES: Final = 20
"""The number of pushes that make our repository."""
LOADED: Final = 300
"""The number of revisions that are loaded: Subversion takes up to a minute for some thousand."""
TRIES: Final = 5
"""The number of attempts to have the kernel drop pages."""
PACKINGS: Final = ("nopack", "packed")
MEMORY: Final = Path("/dev/shm")
"""A RAM disk, if there is one."""


class History(NamedTuple):
    """The content of the repositories of a history."""

    changes: Callable[[int], Iterator[linear.Files]] | None
    """Makes the changes, with sizes divided by its argument; None: the first parents of PATH's main branch."""
    sides: Sequence[str]
    compared: int
    """The number of random revisions whose trees are compared, besides the newest."""


ALL: Final = ("ours", "f6", "f7", "git")
HISTORIES: Final[Mapping[str, History]] = {
    "real": History(None, ALL, 5),
    "wide": History(lambda scale: linear.wide_history(20_000 // scale, 5_000 // scale, 2_000), ALL, 1),
    "files": History(lambda scale: linear.wide_tree(400_000 // scale, 1_000), ("ours", "f7", "git"), 0),
    "revisions": History(lambda scale: linear.long_history(100_000 // scale), ("ours", "f7", "git"), 1),
}

CONFIGS: Final[Mapping[str, Sequence[str]]] = {"slow": ("16",), "medium": ("256",), "fast": ("1024",), "auto": ()}
"""Megabytes of caches. Subversion's own default is 16; only ours has `auto`."""
FAST: Final = ("-c", "0", "--cache-revprops", "yes", "--client-speed", "1000", "--block-read", "yes")
"""The options that the paper's `fast` adds to svnserve."""

OURS: Final = {
    "export": "export {place} {made}", "log": "log {place}", "log -q": "log -q {place}", "log -v": "log -v {place}",
    "verify": "verify {place}", "dump": "dump {place}", "load": "load {dump} {made}", "cat": "cat {place} {path}",
}  # fmt: skip
SVN: Final = {
    "export": "svn export -q {url} {made}", "log": "svn log {url}", "log -q": "svn log -q {url}",
    "log -v": "svn log -v {url}", "verify": "svnadmin verify -q {place}", "dump": "svnadmin dump -q {place}",
    "load": "svnadmin load -q -F {dump} {made}", "cat": "svn cat {url}/{path}",
}  # fmt: skip
GIT: Final = {
    "export": 'mkdir "$2" && git -C "$1" archive main | tar x -C "$2"', "log": 'git -C "$1" log main',
    "log -q": 'git -C "$1" log --format="%h %an %ad" main', "log -v": 'git -C "$1" log --name-status main',
    "verify": 'git -C "$1" fsck --full', "dump": 'git -C "$1" fast-export main',
    "load": 'git -C "$2" fast-import --quiet <"$3"',
}  # fmt: skip


@dataclass(frozen=True)
class Side:
    """A system, and the commands of its user."""

    name: str

    @property
    def release(self) -> str:
        """The release of Subversion that introduced this format."""
        return {"f6": "1.8", "f7": "1.9"}.get(self.name, "")

    def serve(self, config: str, more: Sequence[str], served: Path, host: str, port: int) -> Sequence[str]:
        """Return the command of a server; `more`: further options."""
        sizes = CONFIGS[config]
        if not self.release:
            return serving(served, host, port, *(["--memory-cache-size", *sizes] if sizes else []), *more)
        place = ("--root", str(served), "--listen-host", host, "--listen-port", str(port))
        memory = () if config == "slow" else ("-M", *sizes)
        return "svnserve", "-d", "--foreground", "-T", *place, *memory, *(FAST if config == "fast" else ()), *more

    def does(self, command: str, packing: str, place: str, config: str) -> bool:
        """Tell whether a command exists: only Subversion has cache sizes on a folder, and svnserve has no verify."""
        if self.name == "git":
            return place == "folder" and config == "auto" and (packing == "packed" or command == "load")
        if self.name == "ours":
            return place == "server" or config == "auto"
        return config != "auto" and not (command == "verify" and place == "server")

    def words(self, command: str, place: str, config: str, names: Mapping[str, str]) -> list[str]:
        """Return the words of a command. `place`: a URL or a folder; `names`: `made`, `dump` and `path`."""
        named = {"made": "", "dump": "", "path": "", **names, "place": place}
        if self.name == "git":
            return ["sh", "-c", GIT[command], "sh", *(named[name] for name in ("place", "made", "dump"))]
        if self.name == "ours":
            return ["smartserver", *(word.format_map(named) for word in OURS[command].split())]
        is_url = "://" in place
        named["url"] = place if is_url else f"file://{place}"
        text = "svnrdump dump -q {url}" if is_url and command == "dump" else SVN[command]
        found = [word.format_map(named) for word in text.split()]
        if found[0] == "svnadmin":
            flush = ["--no-flush-to-disk"] if command == "load" and config == "fast" else []
            return [*found[:2], *(["-M", *CONFIGS[config]] if config != "slow" else []), *flush, *found[2:]]
        size = ["--config-option", f"config:miscellany:memory-cache-size={CONFIGS[config][0]}"]
        return [*found[:2], "--non-interactive", *(size if config != "slow" else []), *found[2:]]


class Repositories:
    """The repositories below a folder."""

    def __init__(self, work: Workspace, results: Results, path: Path | None) -> None:
        """`path`: the real history; None: one that is made here."""
        require("svn", "svnadmin", "svnserve", "svnrdump", "fincore")
        self.work = work
        self.results = results
        self._path = path
        # svn writes names as the locale has them.
        here = work.environment("bench") | {"LC_ALL": "C.UTF-8"}
        self.alone = here
        self.environment = {**here, **work.enter(agent(run, here))}
        self.memory = self._scratch(MEMORY if MEMORY.is_dir() else work.folder)
        self.disk = self._scratch(self.results.folder)

    def _scratch(self, above: Path) -> Path:
        """Return the folder for the output of commands, which is removed at the end."""
        made = above / f"{self.work.folder.name}-made"
        self.work.later(functools.partial(shutil.rmtree, made, ignore_errors=True))
        return made

    def sides(self, history: str) -> list[Side]:
        return [Side(name) for name in HISTORIES[history].sides]

    def served(self, history: str, side: Side) -> Path:
        """Return the folder of a side's repositories, which are made if missing."""
        ready = self.results.folder / history
        if not ready.exists():
            new = self.results.folder / f"{history}-new"
            shutil.rmtree(new, ignore_errors=True)
            self._make(history, new)
            new.rename(ready)
        return ready / side.name

    def _make(self, history: str, new: Path) -> None:
        changes = HISTORIES[history].changes
        for side in self.sides(history):
            (new / side.name).mkdir(parents=True)
        git = new / "git" / "packed"
        self.results.progress.step(f"{history}: making the history")
        if changes is None:
            linear.straighten(self._path, git, self.alone)
        else:
            linear.write(git, self.alone, changes(self.results.scale))
            run(["git", "repack", "-adq"], git, self.alone)
        revisions = run(["git", "rev-list", "--reverse", "main"], git, self.alone).split()
        short = revisions[:LOADED][-1]
        for side in self.sides(history):
            self.results.progress.step(f"{history}: making the repository of {side.name}")
            plain, packed = (new / side.name / packing for packing in PACKINGS)
            dump = new / side.name / "dump"
            if side.name == "git":
                run(["git", "branch", "short", short], git, self.alone)
                run(["sh", "-c", 'git fast-export short >"$1"', "sh", str(dump)], git, self.alone)
                run(["git", "branch", "-qD", "short"], git, self.alone)
                continue
            if side.name == "ours":
                with self.server(new / side.name, side, "auto") as server:
                    tips = [revisions[max(len(revisions) * part // PUSHES, 1) - 1] for part in range(1, PUSHES + 1)]
                    for place, tip in (("short", short), *(("nopack", tip) for tip in tips)):
                        run(["git", "push", "--quiet", server.url(place), f"{tip}:refs/heads/main"], git, self.alone)
                run(["smartserver", "dump", str(new / side.name / "short"), str(dump)], None, self.alone)
                shutil.rmtree(new / side.name / "short")
                pack = ["smartserver", "pack"]
            else:
                linear.to_svn(git, plain, self.alone, side.release)
                last = str(min(LOADED, len(revisions)))
                run(["svnadmin", "dump", "-q", "-r", f"0:{last}", "-F", str(dump), str(plain)], None, self.alone)
                pack = ["svnadmin", "pack", "-q", *linear.CACHE]
            shutil.copytree(plain, packed)
            run([*pack, str(packed)], None, self.alone)
        self._compare(history, new, revisions)
        self._count(history, new, git, len(revisions))

    def _compare(self, history: str, new: Path, revisions: Sequence[str]) -> None:
        """Check that the trees of these revisions are the same on all sides."""
        git, made = new / "git" / "packed", self.memory
        trees = linear.trees(git, self.alone)
        chance = random.Random(len(trees))
        for number in sorted({len(trees), *chance.choices(range(1, len(trees) + 1), k=HISTORIES[history].compared)}):
            self.results.progress.step(f"{history}: comparing revision {number}")
            for side in self.sides(history)[:-1]:
                place = str(new / side.name / "packed")
                words = ["smartserver", "export", f"{place}@{revisions[number - 1]}", str(made)]
                if side.release:
                    words = ["svn", "export", "-q", "-r", str(number), f"file://{place}", str(made)]
                run(words, None, self.alone)
                if linear.tree_of(made, git, self.alone) != trees[number - 1]:
                    raise CommandError(f"{history}, {side.name}: revision {number} is not the tree of git's")
                shutil.rmtree(made)

    def _count(self, history: str, new: Path, git: Path, revisions: int) -> None:
        """Add the sizes of the repositories, and of an export, to the table of repositories."""
        listed = run(["git", "ls-tree", "-r", "-t", "-l", "main"], git, self.alone).splitlines()
        sizes = [line.split("\t")[0].split()[3] for line in listed]
        exported = sum(int(each) for each in sizes if each != "-") / 1e6
        for side in self.sides(history):
            for packing in PACKINGS:
                if (place := new / side.name / packing).exists():
                    size = sum(each.stat().st_size for each in place.rglob("*") if each.is_file()) / 1e6
                    name = f"repositories, {history}, {side.name}, {packing}"
                    self.results.keep(name, (size, revisions, len(listed), exported))

    @contextmanager
    def server(self, served: Path, side: Side, config: str, *more: str) -> Iterator[Server]:
        """Run a server of a side while the context is open."""
        with Workspace("served") as work:
            serve = functools.partial(side.serve, config, more, served)
            yield work.start("svn" if side.release else "hpss", served, serve, self.alone)

    def run(self, words: Sequence[str], made: Path, *, alone: bool) -> Cost:
        """Run a command, remove its output `made`, and return its cost; `alone`: without the agent."""
        try:
            return measure(words, None, self.alone if alone else self.environment)[0]
        finally:
            shutil.rmtree(made, ignore_errors=True)


def with_histories(function: Callable[..., object]) -> Callable[..., object]:
    """Add the arguments of a part that reads histories; its function gets their repositories, and their names."""

    @functools.wraps(function)
    def wrapped(path: Path | None, histories: Sequence[str], scale: int, folder: Path, **more: object) -> None:
        with Workspace("bench") as work:
            function(Repositories(work, Results(folder, scale), path), histories, **more)

    names = click.Choice(list(HISTORIES))
    made: Callable[..., object] = with_options(wrapped)
    for option in (
        options.number("--scale", 1, "Divides the sizes of the histories that are made here; such results lie apart."),
        click.option("--history", "histories", multiple=True, type=names, default=["real"], help="Default: real."),
        options.path(required=False),
    ):
        made = option(made)
    return made


def drop_pages(places: Sequence[Path]) -> None:
    """Have the kernel drop the cached pages of files, and check that it did.

    Raises:
        CommandError: some pages are still cached.
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
