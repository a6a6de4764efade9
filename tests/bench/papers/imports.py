"""Imports of new files into new repositories, as in a benchmark of 2002: CVS, svn, git, hg, brz and ours.

Each tool begins with an empty repository. The time is that of the commands by which its user imports a folder. Git, hg
and brz then push these repositories to a server of ours.
"""

from __future__ import annotations

import random
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import click
from needs import require

from bench import options
from bench.histories import lines_of
from bench.papers.results import Results, with_options
from bench.process import measure
from bench.report import end, median, table
from bench.servers import Workspace, run

SHORT: Final = 0.2
"""Seconds that `smartserver import` may take beyond svn's with few small files, because Python starts."""
GIT_TIMES: Final = 2.0
"""The bar with large texts, in git's seconds."""

LARGE: Final = (33_000, 2_600_000)
BINARY: Final = (3_300, 1_000_000)
"""Bytes of the smallest and of the largest binary file."""


def _sizes(bounds: tuple[int, int], count: int) -> Iterator[int]:
    """Yield `count` sizes between two bounds, each larger than the one before by the same factor."""
    low, high = bounds
    for number in range(count):
        yield int(low * (high / low) ** (number / (count - 1)))


def _texts(chance: random.Random, sizes: Iterator[int]) -> Iterator[bytes]:
    for size in sizes:
        yield lines_of(chance, size)


EMPTY: Final = "an empty folder"
ROWS: Final[Mapping[str, Callable[[random.Random], Iterator[bytes]]]] = {
    EMPTY: lambda _: iter(()),
    "100 small texts": lambda chance: _texts(chance, iter([2000] * 100)),
    "1,000 small texts": lambda chance: _texts(chance, iter([2000] * 1000)),
    "100 large texts": lambda chance: _texts(chance, _sizes(LARGE, 100)),
    "100 binaries": lambda chance: (chance.randbytes(size) for size in _sizes(BINARY, 100)),
}


@dataclass(frozen=True)
class Tool:
    """The commands by which a user brings a folder into a new repository of a system. Braces name places of a run."""

    make: str
    """Makes the repository, before the time begins."""
    bring: str
    push: str = ""
    needs: Sequence[str] = field(default_factory=tuple)


TOOLS: Final = {
    "cvs": Tool(
        "cvs -d {made} init",
        "cd {files} && cvs -Q -d {made} import -I ! -W '*.bin -k b' -m new module vendor begin",
        needs=("cvs",),
    ),
    "svn": Tool("svnadmin create {made}", "svn import -q -m new {files} file://{made}", needs=("svn", "svnadmin")),
    "git": Tool(
        "cp -R {files} {made}; git -C {made} init -q -b main",
        "cd {made} && git add -A && git commit -q --allow-empty -m new",
        "git -C {made} push -q {url} main",
    ),
    "hg": Tool(
        "cp -R {files} {made}; hg init {made}",
        'cd {made} && hg commit -q -A -m new || test -z "$(hg status -A)"',
        "hg -R {made} --config extensions.hpss= push -q {url} || test $? = 1",
    ),
    "brz": Tool(
        "cp -R {files} {made}; brz init -q {made}",
        "cd {made} && brz add -q && brz commit -q --unchanged -m new",
        "brz push -q -d {made} {url} || test $? = 3",
    ),
    "ours": Tool("true", "smartserver import -m new {files} {made}"),
}


def make_files(files: Path, row: str, chance: random.Random) -> None:
    """Make the folder to import."""
    files.mkdir()
    for number, text in enumerate(ROWS[row](chance)):
        folder = files / f"folder{number // 50}"
        folder.mkdir(exist_ok=True)
        (folder / f"file{number}.{'bin' if 'binar' in row else 'txt'}").write_bytes(text)


class Imports:
    """The folders to import, and the time that each tool takes for one."""

    def __init__(self, work: Workspace, repeat: int) -> None:
        self._work = work
        self._repeat = repeat
        self._environment = work.environment("bench") | {"SMARTSERVER_AGENT": "0", "EMAIL": "a@example.org"}
        run(["smartserver", "setup", "brz"], None, self._environment)
        self._server = work.start_ours()
        self._pushes = 0

    def measured(self, row: str, tool: Tool) -> list[float]:
        """Return the medians of an import's real, user and sys seconds, and of the seconds of a push of the result."""
        files = self._work.folder / "files" / row
        files.parent.mkdir(exist_ok=True)
        if not files.exists():
            make_files(files, row, random.Random(row))
        brought, pushed = [], [0.0]
        for _ in range(self._repeat):
            made = self._work.folder / "made"
            try:
                run(["sh", "-c", tool.make.format(files=shlex.quote(str(files)), made=made)], None, self._environment)
                words = ["sh", "-c", tool.bring.format(files=shlex.quote(str(files)), made=made)]
                brought.append(measure(words, None, self._environment)[0])
                if tool.push:
                    self._pushes += 1
                    words = ["sh", "-c", tool.push.format(made=made, url=self._server.url(f"new{self._pushes}"))]
                    pushed.append(measure(words, None, self._environment)[0].seconds)
            finally:
                shutil.rmtree(made, ignore_errors=True)
        costs = [(each.seconds, each.cpu - each.system, each.system) for each in brought]
        return [*(median(part) for part in zip(*costs, strict=True)), median(pushed[1:] or pushed)]


def misses(row: str, found: Mapping[str, Sequence[float]]) -> list[str]:
    """Return the bars, of svn and git, that ours missed in a row."""
    ours, svn, git = (found.get(name) for name in ("ours", "svn", "git"))
    if ours is None or svn is None or git is None:
        return []
    if row == "100 small texts":
        bars = [("svn's real + 0.2 s", ours[0], svn[0] + SHORT)]
    else:
        bars = [("svn's real", ours[0], svn[0]), ("svn's processor", sum(ours[1:3]), sum(svn[1:3]))]
    if row == "100 large texts":
        bars.append(("git's real x 2", ours[0], GIT_TIMES * git[0]))
    return [f"{row}: {took:.2f} s; {name}: {bar:.2f} s" for name, took, bar in bars if took > bar]


@click.command()
@options.number("--repeat", 3, "Runs of each; the median counts.")
@click.option("--row", "rows", multiple=True, type=click.Choice(list(ROWS)), help="Only these.")
@with_options
def command(repeat: int, rows: Sequence[str], folder: Path, write: bool) -> None:
    """Imports of new files: CVS, svn, git, hg, brz and `smartserver import`, and pushes of what git, hg and brz made:
    seconds real, user and sys.

    \b
    bench papers imports
    bench papers imports --row '100 large texts' --repeat 1
    """
    require(*{need for tool in TOOLS.values() for need in tool.needs})
    results = Results(folder)
    lines, missed = [], []
    with Workspace("bench") as work:
        imports = Imports(work, repeat)
        for row in rows or ROWS:
            found = {
                name: results.find(f"imports, {row}, {name}", partial(imports.measured, row, tool))
                for name, tool in TOOLS.items()
                if (row, name) != (EMPTY, "ours")  # A commit without files is none.
            }
            shown = {name: " ".join(f"{each:.2f}" for each in values[:3]) for name, values in found.items()}
            pushes = " ".join(f"{found[name][3]:.2f}" for name, tool in TOOLS.items() if tool.push)
            lines.append([row, *(shown.get(name, "(none)") for name in TOOLS), pushes])
            missed += misses(row, found)
    results.show("imports", table(["real, user, sys", *TOOLS, "pushes of git, hg, brz"], lines), write=write)
    end(missed)
