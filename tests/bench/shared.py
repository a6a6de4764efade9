"""Several servers on one store, beside one server on a folder: concurrent pushes."""

from __future__ import annotations

import os
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click
from needs import Missing
from postgres import Postgres
from versitygw import S3, environment

from bench import options
from bench.report import Progress, Report, median, percentile
from bench.servers import HOST, Server, Workspace, free_port, run, serving
from bench.writers import Outcome, at_once, make_tasks
from smartserver.cli.errors import CommandError, one_line

SPREAD = 20.0
"""The bar of the 99th percentile of pushes, in medians."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Servers on one store."""

    name: str
    in_s3: bool = False
    in_postgres: bool = False
    servers: int | None = None
    bar: float | None = None
    """The bar of its pushes per second, in those of the first setup."""


SETUPS = (
    Setup("one server on a folder", servers=1),
    Setup("on a folder"),
    Setup("log in PostgreSQL, packs on a folder", in_postgres=True, bar=0.5),
    Setup("log in PostgreSQL, packs in S3", in_s3=True, in_postgres=True, bar=0.5),
    Setup("log and packs in S3", in_s3=True, bar=0.33),
)


@click.command()
@options.number("-n count", 40, "Pushes of each writer.")
@options.number("--writers", 16, "Processes that push.")
@options.number("--servers", 3, "Servers on each store.")
@click.option("--each", is_flag=True, help="Each writer to a repository of its own.")
def command(count: int, writers: int, servers: int, each: bool) -> None:
    """Several servers on one folder, S3 store or PostgreSQL: processes push at once, as fast as they can.

    \b
    bench shared
    bench shared -n 10 --writers 50 --each --servers 1
    """
    with Workspace("bench") as work, one_line():
        try:
            (work.folder / "s3").mkdir()
            parts = Parts(work, work.enter(S3(work.folder / "s3")), work.enter(Postgres()))
        except Missing as wrong:
            raise CommandError(str(wrong)) from None
        report = pushes(parts, count, writers, servers, each)
    report.finish()


@dataclass(frozen=True, slots=True)
class Parts:
    work: Workspace
    s3: S3
    postgres: Postgres

    def store(self, setup: Setup) -> str:
        """Make a new store."""
        if setup.in_s3:
            root = f"s3://{self.s3.bucket()}/code"
        else:
            root = tempfile.mkdtemp(dir=self.work.folder)
        if setup.in_postgres:
            run(["smartserver", "cluster", "init", root, "--log", self.postgres.database()], None, self.environment)
        return root

    @property
    def environment(self) -> dict[str, str]:
        return self.work.environment("server") | environment(self.s3.gateways[0].endpoint)

    def serve(self, root: str) -> Server:
        """Start a server on a store, with an empty cache folder."""
        port, copies = free_port(), tempfile.mkdtemp(dir=self.work.folder)
        caching = ["--cache-dir", copies] if root.startswith("s3:") else []
        pid = self.work.serve(serving(root, HOST, port, *caching), port, self.environment)
        return Server("hpss", port, Path(root), pid)


def pushes(parts: Parts, count: int, writers: int, servers: int, each: bool) -> Report:
    """Measure concurrent pushes to stores of each kind."""
    to = "repositories of their own" if each else "one repository"
    report = Report(f"{writers} writers x {count} pushes to {to}, through {servers} servers", "one server on a folder")
    progress, git = Progress(), parts.work.environment("bench", {"gc.auto": "0"})
    source = parts.work.folder / "source.git"
    tasks = make_tasks(source, writers, count, git)
    first: Outcome | None = None
    for setup in SETUPS:
        progress.step(setup.name)
        root = parts.store(setup)
        running = [parts.serve(root) for _ in range(setup.servers or servers)]
        names = [f"r{number if each else 0}" for number in range(writers)]
        urls = [running[number % len(running)].url(name) for number, name in enumerate(names)]
        outcome = at_once(parts.work, source, tasks, urls, git)
        for server in running:
            os.kill(server.pid, signal.SIGTERM)
        report.problems += [f"{setup.name}: {push.ref}: {push.refused}" for push in outcome.refused]
        first = first or outcome
        add(report, setup, outcome, first)
    return report


def add(report: Report, setup: Setup, outcome: Outcome, first: Outcome) -> None:
    ratio = outcome.speed / first.speed
    bar, ok = ("", None) if setup.bar is None else (f"{setup.bar} times", ratio >= setup.bar)
    report.add(f"{setup.name}: pushes a second", f"{outcome.speed:.0f}", f"{ratio:.2f} times", bar, ok)
    seconds = [push.seconds for push in outcome.pushed]
    half, most = median(seconds), percentile(seconds, 99)
    shown = f"{half * 1000:.0f}, {most * 1000:.0f} ms"
    report.add(f"{setup.name}: median, p99", shown, "", f"{SPREAD:.0f} medians", most <= SPREAD * half)
