"""The matrix of 2014: one history in our repository and in Subversion's formats 6 and 7, packed and not, read with
small, medium and large caches, cold and hot, from a server and from a folder.

Cold: no page of the repository is in memory, and its server was just started. Hot: the same again, directly after. All
of it twice, and the second result counts. Each cell is written to a file as soon as it is there, with the commit that
was measured; a run goes on where the one before stopped.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import click
import msgspec

from bench import linear, options
from bench.content import PUSHES, SVNSERVE, drop_pages
from bench.links import agent
from bench.process import measure
from bench.report import Progress
from bench.servers import Server, Workspace, run, serving
from smartserver.cli.errors import CommandError

CONFIGS: Final[Mapping[str, tuple[Sequence[str], Sequence[str]]]] = {
    "slow": (("--memory-cache-size", "16"), ()),
    "medium": (("--memory-cache-size", "256"), ("-M", "256")),
    "fast": (("--memory-cache-size", "1024"), SVNSERVE[4:]),
    "auto": ((), ()),
}
"""Options of our server, and of svnserve. Subversion's own default is 16 MB; `auto` is ours alone."""

COMMANDS: Final = ("export", "log", "log -q", "log -v")
PACKINGS: Final = ("nopack", "packed")
PLACES: Final = ("server", "folder")
TEMPERATURES: Final = ("cold", "hot")
FORMATS: Final = {"f6": "1.8", "f7": "1.9"}
"""Of Subversion, by the release that made them the newest."""
RUNS: Final = 2


class Cell(msgspec.Struct, frozen=True):
    """One result."""

    seconds: float
    share: float
    """Of the client's processor, of those seconds."""
    commit: str


Cells = dict[str, Cell]


@dataclass(frozen=True)
class Reader:
    """One of the repositories, and who reads it."""

    name: str
    served: Path
    is_ours: bool

    def serve(self, config: str, served: Path, host: str, port: int) -> Sequence[str]:
        if self.is_ours:
            return serving(served, host, port, *CONFIGS[config][0])
        place = ("--root", str(served), "--listen-host", host, "--listen-port", str(port))
        return "svnserve", "-d", "--foreground", "-T", *CONFIGS[config][1], *place

    def words(self, command: str, place: str, made: Path, configuration: Path) -> list[str]:
        """`place`: a URL, or the folder."""
        what, *flags = command.split()
        target = [str(made)] if what == "export" else []
        if self.is_ours:
            return ["smartserver", what, *flags, place, *target]
        url = place if "://" in place else f"file://{place}"
        quiet = ["-q"] if what == "export" else []
        return ["svn", what, *quiet, *flags, "--non-interactive", "--config-dir", str(configuration), url, *target]


class Matrix:
    """All readers of one history."""

    def __init__(self, work: Workspace, path: Path | None, results: Path) -> None:
        self._work = work
        self._results = results
        self.cells: Cells = msgspec.json.decode(results.read_bytes(), type=Cells) if results.exists() else {}
        self._progress = Progress()
        here = work.environment("bench") | {"LC_ALL": "C.UTF-8"}
        self._environment = {**here, **work.enter(agent(run, here))}
        found = run(["git", "describe", "--always", "--dirty"], Path(__file__).parent, self._environment)
        self._commit = found.strip()
        self._progress.step("making the repositories")
        git = work.folder / "source.git"
        self.revisions = linear.straighten(path, git, self._environment)
        self.readers = [Reader("ours", work.folder / "ours", True)]
        self.readers += [Reader(name, work.folder / name, False) for name in FORMATS]
        for reader in self.readers:
            reader.served.mkdir()
            self._fill(reader, git)

    def _fill(self, reader: Reader, git: Path) -> None:
        plain, packed = (reader.served / packing for packing in PACKINGS)
        if reader.is_ours:
            revisions = run(["git", "rev-list", "--reverse", "main"], git, self._environment).split()
            server = self._work.start("hpss", reader.served, partial(reader.serve, "auto", reader.served))
            for part in range(1, PUSHES + 1):
                tip = revisions[max(len(revisions) * part // PUSHES - 1, 0)]
                push = ["git", "push", "--quiet", server.url(PACKINGS[0]), f"{tip}:refs/heads/main"]
                run(push, git, self._environment)
            pack = ["smartserver", "pack"]
        else:
            linear.to_svn(git, plain, self._environment, FORMATS[reader.name])
            pack = ["svnadmin", "pack", "-q", *linear.CACHE]
        shutil.copytree(plain, packed)
        run([*pack, str(packed)], None, self._environment)

    def fill_cells(self, commands: Sequence[str], configs: Sequence[str]) -> None:
        """Measure what is missing of these."""
        for config in configs:
            for place in PLACES if config in ("auto", "slow") else PLACES[:1]:
                for packing in PACKINGS:
                    for command in commands:
                        self._pairs(command, packing, config, place)

    def _pairs(self, command: str, packing: str, config: str, place: str) -> None:
        """Cold and hot, of each reader in turn, twice."""
        readers = [each for each in self.readers if each.is_ours or config != "auto"]
        names = {each: f"{command}, {each.name}-{packing}, {config}, {place}" for each in readers}
        if all(f"{name}, {hot}" in self.cells for name in names.values() for hot in TEMPERATURES):
            return
        self._progress.step(f"{command}, {packing}, {config}, {place}")
        for _ in range(RUNS):
            for reader, name in names.items():
                drop_pages([reader.served / packing])
                with self._served(reader, config, place) as server:
                    for temperature in TEMPERATURES:
                        self.cells[f"{name}, {temperature}"] = self._measured(reader, command, packing, server)
        self._results.write_bytes(msgspec.json.format(msgspec.json.encode(self.cells)))

    @contextlib.contextmanager
    def _served(self, reader: Reader, config: str, place: str) -> Iterator[Server | None]:
        if place == "folder":
            yield None
            return
        with Workspace("served") as work:
            yield work.start(
                "hpss" if reader.is_ours else "svn", reader.served, partial(reader.serve, config, reader.served)
            )

    def _measured(self, reader: Reader, command: str, packing: str, server: Server | None) -> Cell:
        made = self._work.folder / "made"
        place = server.url(packing) if server is not None else str(reader.served / packing)
        try:
            cost = measure(reader.words(command, place, made, self._work.folder / "svn"), None, self._environment)[0]
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return Cell(round(cost.seconds, 4), round(min(cost.cpu / cost.seconds, 1.0), 3), self._commit)


def tables(cells: Cells, command: str) -> Iterator[str]:
    """The table of a command in Markdown: seconds of the client, and the share of its processor."""
    configs = [each for each in CONFIGS if any(f", {each}, " in name for name in cells)]
    for place in PLACES:
        columns = [(hot, config) for hot in TEMPERATURES for config in configs]
        rows = []
        for packing in PACKINGS:
            for reader in ("ours", *FORMATS):
                found = [
                    cells.get(f"{command}, {reader}-{packing}, {config}, {place}, {hot}") for hot, config in columns
                ]
                if any(found):
                    shown = ["" if each is None else f"{each.seconds:.2f} ({each.share:.0%})" for each in found]
                    rows.append(f"| {reader}, {packing} | {' | '.join(shown)} |")
        if rows:
            yield f"\n`{command}`, from a {place}:\n"
            yield f"| | {' | '.join(f'{hot}, {config}' for hot, config in columns)} |"
            yield "|---" * (len(columns) + 1) + "|"
            yield from rows


@click.command()
@options.path(required=False)
@click.option(
    "--results",
    type=click.Path(dir_okay=False, path_type=Path),
    default="papers.json",
    show_default=True,
    help="The file of the cells.",
)
@click.option("--command", "commands", multiple=True, type=click.Choice(COMMANDS), help="Only these.")
@click.option("--config", "configs", multiple=True, type=click.Choice(list(CONFIGS)), help="Only these.")
def command(path: Path | None, results: Path, commands: Sequence[str], configs: Sequence[str]) -> None:
    """The matrix of 2014, ours beside Subversion's formats 6 and 7: export and logs, packed and not, cold and hot, with
    small, medium and large caches, from a server and a folder; seconds of the client and its share of the processor.

    The history is that of the first parents of PATH's main branch. Needs Subversion and fincore.

    \b
    bench papers ~/src/project
    bench papers ~/src/project --command export --config fast
    """
    if shutil.which("svnserve") is None:
        raise CommandError("svnserve is not on PATH: install Subversion")
    with Workspace("bench") as work:
        matrix = Matrix(work, path, results)
        matrix.fill_cells(commands or COMMANDS, configs or list(CONFIGS))
        click.echo(f"{matrix.revisions} revisions")
        for each in commands or COMMANDS:
            click.echo("\n".join(tables(matrix.cells, each)))
