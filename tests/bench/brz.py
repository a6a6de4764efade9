"""A Breezy history pushed and branched back, by our plugin and by stock Breezy: time, CPU, memory, bytes, what came.

Stock pushes from, and its server serves, a repository of one pack: its best case, for then it copies compressed blocks.
What goes over the link is counted in a round of its own, so that the proxy costs nothing in those that are timed.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from bench.breezy import BRZ, WITHOUT_PLUGIN, breezy_library, plugin_at
from bench.history import Runs, add_costs, folder_size
from bench.peers.brz import Brz
from bench.peers.ours import serving
from bench.process import Watch, measure
from bench.ratchet import history
from bench.report import Progress, Report
from netem.proxy import Proxy
from smartserver.cli.servers import HOST, Say, Server, Workspace, attempt, free_port
from smartserver.trace.text import size

RATIO = 1.0
"""Times stock's seconds that ours may take."""

SOURCE = "source"
"""The repository that stock's server serves; the branch in it is `trunk`."""


class _Side:
    """Breezy with or without our plugin, and the server it speaks to."""

    def __init__(self, server: Server, settings: Mapping[str, str], served: str) -> None:
        """`served`: the branch that is branched; empty: what was pushed last."""
        self.server = server
        self.settings = settings
        self.served = served
        self.push = Runs()
        self.branch = Runs()
        self.pushed = ""
        """The last branch on the server that a push made."""


class BrzHistory:
    """The measurement; its folder is removed with the workspace."""

    def __init__(self, work: Workspace, progress: Progress, library: Mapping[str, str]) -> None:
        """`library`: the environment in which this interpreter finds Breezy."""
        self._work = work
        self._progress = progress
        settings = {**Brz.settings(work.folder, ""), **library}
        self._settings = {name: value for name, value in settings.items() if name not in WITHOUT_PLUGIN}
        self.source = work.folder / "brz" / "trunk"
        self.made_from = ""

    def prepare(self, path: Path | None, most: int) -> None:
        """The history in one pack, and both servers.

        Raises:
            CommandError: the path is nothing that can be converted.
        """
        self._progress.step("making the history")
        self.made_from = history.prepare(path, self._work.folder, self._environment("fixtures", WITHOUT_PLUGIN), most)
        served = self._work.folder / "served-bzr"
        shutil.copytree(self._work.folder / "brz", served / SOURCE, symlinks=True)
        port = free_port()
        command = [*BRZ, "serve", "--protocol=bzr", "--allow-writes", f"--listen={HOST}", f"--port={port}"]
        pid = self._work.serve([*command, f"--directory={served}"], port, self._environment("server", WITHOUT_PLUGIN))
        self.stock = _Side(Server("bzr", port, served, pid), WITHOUT_PLUGIN, f"{SOURCE}/trunk")
        served = self._work.folder / "served-hpss"
        served.mkdir()
        port = free_port()
        pid = self._work.serve(serving(served, HOST, port), port, self._environment("server", {}))
        self.ours = _Side(Server("hpss", port, served, pid), {"BRZ_PLUGINS_AT": plugin_at()}, "")

    def round(self, number: int, *, counted: bool) -> None:
        """Push and branch once each, ours and stock's in turn; `counted`: on a link that counts, not timed."""
        name = f"pushed-{number}"
        for side in (self.ours, self.stock):
            self._progress.step(f"round {number}: push over {side.server.scheme}://")
            self._run(side, side.push, "push", name, ["push", "--quiet", "-d", str(self.source), "URL"], counted)
            side.pushed = name
        for side in (self.ours, self.stock):
            self._progress.step(f"round {number}: branch over {side.server.scheme}://")
            target = self.branched(side)
            shutil.rmtree(target, ignore_errors=True)
            command = ["branch", "--quiet", "URL", str(target)]
            self._run(side, side.branch, "branch", side.served or name, command, counted)

    def branched(self, side: _Side) -> Path:
        """The last branch that was made from a server."""
        return self._work.folder / f"branched-{side.server.scheme}"

    def _environment(self, user: str, settings: Mapping[str, str]) -> dict[str, str]:
        return self._work.environment(user) | dict(self._settings) | dict(settings)

    def _run(self, side: _Side, runs: Runs, user: str, name: str, words: list[str], counted: bool) -> None:
        # Each operation by a user of its own: what a push remembers of the server is nothing a branch knows.
        environment = self._environment(user, side.settings)

        def command(port: int | None = None) -> list[str]:
            return [*BRZ, *[side.server.url(name, port) if word == "URL" else word for word in words]]

        if counted:
            with Proxy(0.0, side.server.address) as proxy:
                measure(command(proxy.port), None, environment)
                counts = proxy.take()
            runs.bytes_up, runs.bytes_down = counts.bytes_up, counts.bytes_down
            return
        with Watch(side.server.pid) as watch:
            ran = measure(command(), None, environment)
        runs.client.append(ran.cost)
        runs.server.append(watch.cost)

    # -- whether all is there

    def differences(self) -> list[str]:
        """What the last branch over our protocol has otherwise than the source."""
        found = []
        branched = self.branched(self.ours)
        environment = self._environment("fixtures", WITHOUT_PLUGIN)
        for what in ("revno", "testament --strict --long", "check --branch --repo"):
            self._progress.step(f"comparing what brz {what} says")
            answers = []
            for place in (self.source, branched):
                done = attempt([*BRZ, *what.split(), str(place)], None, environment)
                said = [line for line in (done.stdout + done.stderr).splitlines() if str(self._work.folder) not in line]
                answers.append((done.returncode, said))
            if answers[0] != answers[1] or answers[0][0]:
                (status, said), (ours, we_say) = answers
                counts = f"{len(said)} and {len(we_say)} lines, status {status} and {ours}"
                found.append(f"brz {what} of the source and of the branch differ: {counts}")
        return found

    @property
    def revisions(self) -> str:
        """How many revisions the repository has, as Breezy counts them."""
        said = attempt(
            [*BRZ, "info", "-v", str(self.source)], None, self._environment("fixtures", WITHOUT_PLUGIN)
        ).stdout.partition("Repository:\n")[2]
        return said.split(maxsplit=1)[0] if said else "?"


def run_brz(path: Path | None, repeat: int, most: int, tools: Path | None, say: Say) -> tuple[Report, list[str]]:
    """Measure; the table, and what is wrong with the result.

    `path`: the history, None for one that is made; `most`: revisions of a git history that are converted. `tools`:
    where the programs of an environment that has Breezy are, for where this one has not.

    Raises:
        CommandError: something failed.
    """
    library = breezy_library(tools)
    with Workspace("bench") as work:
        measured = BrzHistory(work, Progress(say), library)
        measured.prepare(path, most)
        measured.round(0, counted=True)
        for number in range(1, repeat + 1):
            measured.round(number, counted=False)
        return _report(measured, repeat), measured.differences()


def _report(measured: BrzHistory, repeat: int) -> Report:
    ours, stock = measured.ours, measured.stock
    report = Report(
        f"{measured.revisions} revisions ({measured.made_from}), loopback, median of {repeat}; stock from one pack",
        "bzr://",
    )
    for what, mine, theirs in (("push", ours.push, stock.push), ("branch", ours.branch, stock.branch)):
        ratio = mine.seconds / theirs.seconds
        report.add(
            f"{what}: wall", f"{mine.seconds:.2f} s ({ratio:.2f} x)", f"{theirs.seconds:.2f} s", f"{RATIO:g} x",
            ratio <= RATIO,
        )  # fmt: skip
        add_costs(report, what, mine, theirs)
        report.add(f"{what}: bytes up", size(mine.bytes_up), size(theirs.bytes_up))
        report.add(f"{what}: bytes down", size(mine.bytes_down), size(theirs.bytes_down))
    packs = [folder_size(measured.branched(side), "**/*.pack") for side in (ours, stock)]
    report.add("pack after the branch", f"{size(packs[0])} ({packs[0] / packs[1]:.2f} x)", size(packs[1]))
    stored = [folder_size(side.server.served / side.pushed) for side in (ours, stock)]
    report.add("on the server", size(stored[0]), size(stored[1]))
    return report
