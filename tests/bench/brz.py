"""A Breezy history pushed and branched back, by our plugin and by stock Breezy."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import click

from bench import histories, options
from bench.breezy import BRZ, WITHOUT_PLUGIN, plugin_at, serve_options, settings
from bench.copies import Answer, Copies, Side
from bench.report import Report
from bench.servers import Workspace, attempt, serving

SOURCE = "source"
"""The repository that the stock server serves; its branch is `trunk`."""


class BrzHistory(Copies):
    """The copies of a Breezy history. The stock side has one pack, so it copies compressed blocks."""

    back = "branch"
    digits = 2
    must_succeed = True
    questions: ClassVar[Sequence[str]] = ("brz revno", "brz testament --strict --long", "brz check --branch --repo")

    def __init__(self, path: Path | None, work: Workspace, most: int) -> None:
        super().__init__(work)
        self._settings = settings(work.folder)
        self._progress.step("making the history")
        self._stock = self._environment("fixtures", WITHOUT_PLUGIN)
        self.made_from = histories.prepare(path, work.folder, self._stock, most)
        self.source = work.folder / "brz" / "trunk"
        theirs, ours = work.folder / "served-bzr", work.folder / "served-hpss"
        shutil.copytree(work.folder / "brz", theirs / SOURCE, symlinks=True)
        ours.mkdir()
        stock = work.start(
            "bzr", theirs, lambda host, port: [*BRZ, *serve_options(theirs, host, port)],
            self._environment("server", WITHOUT_PLUGIN),
        )  # fmt: skip
        self.theirs = Side(stock, f"{SOURCE}/trunk", WITHOUT_PLUGIN)
        server = work.start("hpss", ours, partial(serving, ours), self._environment("server", {}))
        self.ours = Side(server, settings={"BRZ_PLUGINS_AT": plugin_at()})

    def _environment(self, user: str, settings: Mapping[str, str]) -> dict[str, str]:
        return self._work.environment(user) | self._settings | dict(settings)

    def environment(self, side: Side, user: str) -> Mapping[str, str]:
        # Each operation by a user of its own: what a push remembers of the server is nothing a branch knows.
        return self._environment(user, side.settings)

    def command(self, what: str, url: str, target: Path) -> list[str]:
        if what == self.push:
            return [*BRZ, "push", "--quiet", "-d", str(self.source), url]
        return [*BRZ, "branch", "--quiet", url, str(target)]

    def answer(self, question: str, place: Path) -> Answer:
        done = attempt([*BRZ, *question.split()[1:], str(place)], None, self._stock)
        said = (done.stdout + done.stderr).splitlines()
        return done.returncode, [line for line in said if str(self._work.folder) not in line], ()

    @property
    def revisions(self) -> str:
        """The number of revisions in the repository, as Breezy counts them."""
        said = attempt([*BRZ, "info", "-v", str(self.source)], None, self._stock).stdout.partition("Repository:\n")[2]
        return said.split(maxsplit=1)[0] if said else "?"


@click.command()
@options.path(required=False)
@options.number("--repeat", 3, "Timed rounds.")
@options.number("-n most", 3000, "The oldest revisions of a git history.")
def command(path: Path | None, repeat: int, most: int) -> None:
    """Push and branch of a Breezy history, ours beside stock Breezy over bzr://: time, CPU, memory, bytes, sizes.

    PATH is a bzr branch, or a git repository or bundle whose oldest revisions are converted; without it a history of
    300 revisions is made. Stock pushes from and serves a repository of one pack. The branch over hpss:// must equal the
    source: revno, testament of the tip, and the output and counts of `brz check`. Exit status 1 if ours takes longer
    than stock, or a process takes over 300 MB.

    \b
    bench brz ~/src/branch
    bench brz history.bundle -n 10000 --repeat 1
    """
    with Workspace("bench") as work:
        copies = BrzHistory(path, work, most)
        copies.rounds(repeat)
        made = f"{copies.revisions} revisions ({copies.made_from})"
        report = Report(f"{made}, loopback, median of {repeat}; stock from one pack", "bzr://")
        copies.report(report)
        report.problems = copies.differences()
    report.finish()
