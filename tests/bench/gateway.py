"""Stock git through the gateway, beside `git http-backend` on a bare clone: processor time of server and client."""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from bench import options
from bench.git_histories import copy
from bench.process import MODULES, cpu_of, measure
from bench.report import Progress, Report
from bench.servers import Workspace, free_port, run
from smartserver.cli.errors import one_line
from smartserver.cli.serve_gateway import TIDY_AFTER

CLONES = {"warm": 1.1, "cold": 2.3}
"""The bar of each kind of clone, in git's processor time."""

NOTHING = 0.02
"""Seconds of processor time that a fetch of nothing may take beyond git's."""

SETTLED = 3.0
"""Seconds without work after which a server has finished its work after an answer."""


class Side:
    """One server, and a client of it."""

    def __init__(self, folder: Path, url: str, process: int, environment: Mapping[str, str]) -> None:
        self._clone = folder / "clone.git"
        self._url, self._process, self._environment = url, process, environment

    def cost(self, *words: str, folder: Path | None = None) -> float:
        """Run a command of git, and return the processor seconds of the command and of the server."""
        before = cpu_of(self._process)
        client, _ = measure(["git", *words], folder, self._environment)
        return client.cpu + cpu_of(self._process) - before

    def clone(self) -> float:
        shutil.rmtree(self._clone, ignore_errors=True)
        return self.cost("clone", "--quiet", "--bare", self._url, str(self._clone))

    def fetch(self) -> float:
        return self.cost("fetch", "--quiet", self._url, "HEAD", folder=self._clone)

    def settle(self) -> None:
        """Wait until the server is idle."""
        time.sleep(TIDY_AFTER)
        while True:
            before = cpu_of(self._process)
            time.sleep(SETTLED)
            if cpu_of(self._process) - before < SETTLED / 50:
                return


@click.command()
@options.path()
@options.number("-n count", 5, "Runs of each; the one that costs the least counts.")
def command(path: Path, count: int) -> None:
    """Clone PATH with stock git, and fetch nothing: through the gateway, and from `git http-backend`.

    \b
    bench gateway history.bundle
    """
    progress = Progress()
    with Workspace("bench") as work, one_line():
        environment = work.environment("gateway", {"gc.auto": "0", "protocol.hpss.allow": "always"})
        served, bare, cache = work.folder / "served", work.folder / "bare", work.folder / "cache"
        served.mkdir()
        bare.mkdir()
        progress.step("copying the history")
        copy(path, bare / "project", environment)
        run(["git", "repack", "-a", "-d", "--quiet"], bare / "project", environment)
        ports = [free_port() for _ in range(3)]
        program = [sys.executable, "-m", "smartserver.cli.main", "serve", str(served), "--anonymous", "write"]
        program += ["--listen", f"127.0.0.1:{ports[0]}", "--http", f"127.0.0.1:{ports[1]}", "--cache-dir", str(cache)]
        ours = Side(work.folder, f"http://127.0.0.1:{ports[1]}/project", work.serve(program, ports[1]), environment)
        backend = [sys.executable, "-m", "bench.http_backend", str(bare), str(ports[2])]
        process = work.serve(backend, ports[2], {**environment, **MODULES})
        git = Side(work.folder, f"http://127.0.0.1:{ports[2]}/project", process, environment)
        push = ["git", "push", "--quiet", "--mirror", f"hpss://127.0.0.1:{ports[0]}/project"]
        run(push, bare / "project", environment)
        ours.settle()

        def cold() -> float:
            shutil.rmtree(cache, ignore_errors=True)
            taken = ours.clone()
            ours.settle()
            return taken

        rows: Mapping[str, Callable[[], float]] = {
            "git": git.clone, "cold": cold, "warm": ours.clone, "git, nothing": git.fetch, "nothing": ours.fetch,
        }  # fmt: skip
        costs = dict.fromkeys(rows, math.inf)
        for number in range(count):  # In turn: what else runs on this machine meets all of them.
            progress.step(f"run {number + 1} of {count}")
            for name, act in rows.items():
                costs[name] = min(costs[name], act())
        report = Report("Processor time of server and client", beside="git http-backend")
        for name, bar in CLONES.items():
            times = costs[name] / costs["git"]
            report.both(f"clone, {name}", _shown, costs[name], costs["git"], f"{bar} times", times <= bar)
            report.add("", f"{times:.2f} times")
        more = costs["nothing"] - costs["git, nothing"]
        limit = f"{1000 * NOTHING:.0f} ms more"
        report.both("fetch of nothing", _shown, costs["nothing"], costs["git, nothing"], limit, more <= NOTHING)
        report.add(run(["git", "version"], None, environment).strip(), "")
        report.finish()


def _shown(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms"
