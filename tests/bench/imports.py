"""Imports of new files into new repositories, as a benchmark of 2002 had them: CVS, svn, git, hg, brz and ours.

Each tool begins with an empty repository, and the time is that of the commands by which its user brings a folder into
it. The pushes of git, hg and brz to a server of ours are of the repositories that were made so.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
from needs import require

from bench import options
from bench.histories import lines_of
from bench.process import Cost, measure
from bench.report import Progress, Report, median
from bench.servers import Workspace, run

SVN_TIMES: Final = 1.0
"""Times svn's seconds, real and of the processor, that `smartserver import` may take of many or large files."""
SHORT: Final = 0.2
"""Seconds by which it may be above svn of few small files: Python starts."""
GIT_TIMES: Final = 2.0
"""Times git's seconds that it may take of large texts."""

LARGE: Final = (33_000, 2_600_000)
BINARY: Final = (3_300, 1_000_000)
"""Bytes of the smallest and the largest file of these rows."""


def _sizes(bounds: tuple[int, int], count: int) -> Iterator[int]:
    """Sizes between two bounds, each larger by the same factor."""
    low, high = bounds
    for number in range(count):
        yield int(low * (high / low) ** (number / (count - 1)))


def _texts(chance: random.Random, sizes: Iterator[int]) -> Iterator[bytes]:
    for size in sizes:
        yield lines_of(chance, size)


ROWS: Final[Mapping[str, Callable[[random.Random], Iterator[bytes]]]] = {
    "an empty folder": lambda _: iter(()),
    "100 small texts": lambda chance: _texts(chance, iter([2000] * 100)),
    "1,000 small texts": lambda chance: _texts(chance, iter([2000] * 1000)),
    "100 large texts": lambda chance: _texts(chance, _sizes(LARGE, 100)),
    "100 binaries": lambda chance: (chance.randbytes(size) for size in _sizes(BINARY, 100)),
}


@dataclass(frozen=True)
class Tool:
    """How a user brings a folder into a new repository of a system. In braces are the places of a run."""

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


class Imports:
    """Folders, and what each tool takes for one."""

    def __init__(self, work: Workspace, repeat: int) -> None:
        self._work = work
        self._repeat = repeat
        self._environment = work.environment("bench") | {"SMARTSERVER_AGENT": "0", "EMAIL": "a@example.org"}
        self._progress = Progress()
        run(["smartserver", "setup", "brz"], None, self._environment)
        self._server = work.start_ours()
        self._pushes = 0

    def costs(self, files: Path, tool: Tool) -> tuple[list[Cost], list[Cost]]:
        """Of the imports, and of the pushes of what they made."""
        brought: list[Cost] = []
        pushed: list[Cost] = []
        for _ in range(self._repeat):
            made = self._work.folder / "made"
            try:
                run(["sh", "-c", tool.make.format(files=files, made=made)], None, self._environment)
                words = ["sh", "-c", tool.bring.format(files=files, made=made)]
                brought.append(measure(words, None, self._environment)[0])
                if tool.push:
                    self._pushes += 1
                    words = ["sh", "-c", tool.push.format(made=made, url=self._server.url(f"new{self._pushes}"))]
                    pushed.append(measure(words, None, self._environment)[0])
            finally:
                shutil.rmtree(made, ignore_errors=True)
        return brought, pushed

    def row(self, name: str, report: Report) -> None:
        """Measure all tools with one kind of files."""
        chance = random.Random(name)
        files = self._work.folder / "files"
        files.mkdir()
        for number, text in enumerate(ROWS[name](chance)):
            ending = "bin" if "binar" in name else "txt"
            folder = files / f"folder{number // 50}"
            folder.mkdir(exist_ok=True)
            (folder / f"file{number}.{ending}").write_bytes(text)
        found: dict[str, tuple[float, float]] = {}
        for tool_name, tool in TOOLS.items():
            if tool_name == "ours" and name == "an empty folder":
                continue  # A commit without files is none.
            self._progress.step(f"{name}: {tool_name}")
            brought, pushed = self.costs(files, tool)
            found[tool_name] = median([each.seconds for each in brought]), median([each.cpu for each in brought])
            if tool_name != "ours":
                report.add(f"{name}, {tool_name}", "", _shown(*found[tool_name]))
            if pushed:
                cost = median([each.seconds for each in pushed]), median([each.cpu for each in pushed])
                report.add(f"{name}, {tool_name} push", _shown(*cost))
        if "ours" in found:
            self._judge(name, found, report)
        shutil.rmtree(files)

    @staticmethod
    def _judge(name: str, found: Mapping[str, tuple[float, float]], report: Report) -> None:
        ours, svn, git = found["ours"], found["svn"], found["git"]
        if name == "100 small texts":
            report.add(name, _shown(*ours), _shown(*svn), f"svn + {SHORT:g} s", ours[0] <= svn[0] + SHORT)
            return
        fits = ours[0] <= SVN_TIMES * svn[0] and ours[1] <= SVN_TIMES * svn[1]
        report.add(name, _shown(*ours), _shown(*svn), f"svn's, x {SVN_TIMES:g}", fits)
        if name == "100 large texts":
            report.add(name, _shown(*ours), _shown(*git), f"git's, x {GIT_TIMES:g}", ours[0] <= GIT_TIMES * git[0])


def _shown(seconds: float, cpu: float) -> str:
    return f"{seconds:.2f} s, cpu {cpu:.2f}"


@click.command()
@options.number("--repeat", 3, "Runs of each; the median counts.")
@click.option("--row", "rows", multiple=True, type=click.Choice(list(ROWS)), help="Only these.")
def command(repeat: int, rows: Sequence[str]) -> None:
    """Imports of new files: CVS, svn, git, hg, brz and `smartserver import`, and pushes of what git, hg and brz made.

    \b
    bench imports
    bench imports --row '100 large texts' --repeat 1
    """
    require(*{need for tool in TOOLS.values() for need in tool.needs})
    with Workspace("bench") as work:
        imports = Imports(work, repeat)
        report = Report(f"imports, medians of {repeat}: real, and user + sys", "others")
        for name in rows or ROWS:
            imports.row(name, report)
    report.finish()
