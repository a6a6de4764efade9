"""A Mercurial history pushed and cloned back, by our extension and by stock hg over http."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import click

from bench import histories, options
from bench.copies import Answer, Copies, Side
from bench.mercurial import OURS, SETTINGS, serve_options
from bench.report import Report
from bench.servers import Workspace, attempt, run

SOURCE = "source"
"""The repository that is pushed, and that the stock server serves, too."""

CHANGESETS = "{node} {p1node} {p2node} {phase} {branch}\n"


class HgHistory(Copies):
    """The copies of a Mercurial history. Both sides push from the repository that the stock server serves."""

    digits = 2
    must_succeed = True
    fewer = True
    stored = (".hg/store", ".hg/store/**/*")
    questions: ClassVar[Mapping[str, Sequence[str]]] = {
        "hg log": ("log", "--template", CHANGESETS),
        "hg verify": ("verify",),
    }

    def __init__(self, path: Path | None, work: Workspace, repeat: int) -> None:
        super().__init__(work)
        theirs = work.folder / "served-http"
        self.source = theirs / SOURCE
        theirs.mkdir()
        self._progress.step("making the history")
        histories.prepare_hg(path, self.source, self._environment("fixtures"))
        for number in range(repeat + 1):
            self.hg("init", str(theirs / f"pushed-{number}"))
        serve = partial(serve_options, theirs, work.folder)
        self.theirs = Side(work.start("http", theirs, serve, self._environment("server")), SOURCE)
        self.ours = Side(work.start_ours())

    def _environment(self, user: str) -> dict[str, str]:
        return {**self._work.environment(user), **SETTINGS}

    def hg(self, *words: str) -> str:
        """Run hg on the source, and return its output."""
        return run(["hg", *words], self.source, self._environment("fixtures"))

    def environment(self, side: Side, user: str) -> Mapping[str, str]:
        return self._environment(user)

    def command(self, what: str, url: str, target: Path) -> list[str]:
        words = OURS if url.startswith(self.ours.server.scheme) else ("hg",)
        if what == self.push:
            return [*words, "push", "--quiet", "--new-branch", url]
        return [*words, "clone", "--quiet", "--noupdate", url, str(target)]

    def answer(self, question: str, place: Path) -> Answer:
        done = attempt(["hg", *self.questions[question]], place, self._environment("fixtures"))
        # Changesets come in the order in which they came to be there.
        return done.returncode, sorted(done.stdout.splitlines()), sorted(done.stderr.splitlines())


@click.command()
@options.path(required=False)
@options.number("--repeat", 3, "Timed rounds.")
def command(path: Path | None, repeat: int) -> None:
    """Push and clone of a Mercurial history, ours beside hg over http: time, CPU, memory, bytes, sizes.

    PATH is an hg repository, or a git repository or bundle, which `hg convert` converts; without it a history of 100
    changesets is made. The clone over hpss:// must equal the source: changesets, phases, branches, and the output and
    counts of `hg verify`. Exit status 1 if ours takes longer or more bytes than stock, or a process takes over 300 MB.

    \b
    bench hg ~/src/repository
    bench hg history.bundle --repeat 1
    """
    with Workspace("bench") as work:
        copies = HgHistory(path, work, repeat)
        copies.rounds(repeat)
        count = copies.hg("log", "--rev", "tip", "--template", "{rev + 1}")
        report = Report(f"{count} changesets, loopback, median of {repeat}", "http://")
        copies.report(report)
        report.problems = copies.differences()
    report.finish()
