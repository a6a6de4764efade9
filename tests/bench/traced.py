"""Commands of git, brz and hg under `smartserver trace run`: how much of the wait has no name."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from bench import options
from bench.report import Progress, circumstances, end, table
from netem.proxy import Proxy
from smartserver.cli.servers import Workspace, attempt, run
from smartserver.trace.wait import Trace, traces, wait

RTTS = (0.0, 1.0)

SHARE, LEAST = 0.05, 3000
"""How much of the wait may have no name: such a part, or so many microseconds, whichever is more."""

TIME_TO_LOAD = 1.0
"""Seconds after which an agent that was just started has loaded everything."""


class Step(NamedTuple):
    """One command. `before`: a script that goes before it and is not traced."""

    words: str
    before: str = ""


COMMIT = "echo x >> f; {0} commit -q -m x f"

GIT = [
    Step(
        "git push -q origin main",
        "git init -q -b main .; git remote add origin {url}/git; echo 1 > f; git add f; git commit -q -m 1",
    ),
    Step("git push -q origin main", COMMIT.format("git")),
    Step("git push -q origin main"),
    Step("git push -q origin main:other"),
    Step("git push -q origin --delete other"),
    Step("git push -q --force origin main", "git commit -q --amend -m y"),
    Step("git ls-remote -q origin"),
    Step("git fetch -q origin"),
    Step("git clone -q {url}/git clone"),
    Step("git -C clone pull -q", COMMIT.format("git") + "; git push -q origin main"),
    Step("git -C clone push -q --dry-run origin main"),
    Step("git fetch -q {url}/nothing"),
]

BRZ = [
    Step("brz push -q {url}/brz", "brz init -q .; echo 1 > f; brz add -q f; brz commit -q -m 1"),
    Step("brz push -q {url}/brz", COMMIT.format("brz")),
    Step("brz push -q {url}/brz"),
    Step("brz branch -q {url}/brz clone"),
    Step("brz pull -q -d clone", COMMIT.format("brz") + "; brz push -q"),
    Step("brz missing -q -d clone {url}/brz"),
    Step("brz log -q -r -1 {url}/brz"),
    Step("brz revno {url}/brz"),
    Step("brz tags -q -d {url}/brz"),
]

HG = [
    Step("hg push -q {url}/hg", "hg init .; echo 1 > f; hg commit -q -A -m 1 -u a"),
    Step("hg push -q {url}/hg", COMMIT.format("hg") + " -u a"),
    Step("hg push -q {url}/hg"),
    Step("hg clone -q {url}/hg clone"),
    Step("hg -R clone pull -q", COMMIT.format("hg") + " -u a; hg push -q {url}/hg"),
    Step("hg -R clone incoming -q"),
    Step("hg -R clone outgoing -q"),
    Step("hg identify {url}/hg"),
    Step("hg -R clone push -q -B @ {url}/hg", "hg -R clone bookmark @"),
]


@click.command()
@options.rtts("default: 0 and 1 s")
def command(rtts: Sequence[float]) -> None:
    """Thirty commands of git, brz and hg, each under `smartserver trace run`, with the agent and without: the part of
    the wait that no span names.

    \b
    bench traced
    bench traced --rtt 20ms
    """
    progress = Progress()
    rows: list[list[str]] = []
    missed: list[str] = []
    for rtt in rtts or RTTS:
        for agent in ("0", "1"):
            progress.step(f"RTT {rtt * 1000:g} ms, SMARTSERVER_AGENT={agent}")
            for words, found in _traced(rtt, agent):
                total, unnamed = found
                cell = f"{unnamed / 1000:.1f} of {total / 1000:.0f} ms"
                if unnamed > max(LEAST, SHARE * total):
                    cell += " MISSED"
                    missed.append(f"{words} at {rtt * 1000:g} ms, SMARTSERVER_AGENT={agent}: {cell}")
                rows.append([words, f"{rtt * 1000:g} ms", "with" if agent == "1" else "without", cell])
    click.echo(table(["command", "RTT", "agent", "unnamed"], rows))
    click.echo(f"\n({circumstances()})")
    end(missed)


def _traced(rtt: float, agent: str) -> list[tuple[str, tuple[int, int]]]:
    """Each command, and of its wait the microseconds in all and unnamed."""
    with Workspace("traced") as work:
        runtime = work.folder / "runtime"
        runtime.mkdir(mode=0o700)
        environment = work.environment("user") | {"SMARTSERVER_AGENT": agent, "XDG_RUNTIME_DIR": str(runtime)}
        server = work.start_ours()
        proxy = work.enter(Proxy(rtt, server.address))
        url = server.url("", proxy.port).rstrip("/")
        for tool in ("hg", "brz"):
            run(["smartserver", "setup", tool], None, environment)
        run(["brz", "whoami", "A <a@example.org>"], None, environment)
        found: list[tuple[str, tuple[int, int]]] = []
        for steps in (GIT, BRZ, HG):
            folder = work.folder / f"{len(found)}"
            folder.mkdir()
            for step in steps:
                if step.before:
                    run(["sh", "-e", "-c", step.before.format(url=url)], folder, environment)
                found.append((step.words.partition(" {")[0], _wait_of(step, url, folder, environment)))
                if agent == "1" and len(found) == 1:
                    time.sleep(TIME_TO_LOAD)
        if agent == "1":
            run(["smartserver", "agent", "stop"], None, environment)
    return found


def _wait_of(step: Step, url: str, folder: Path, environment: dict[str, str]) -> tuple[int, int]:
    path = folder / "trace"
    words = step.words.format(url=url).split()
    attempt(["smartserver", "trace", "run", "-o", str(path), "--", *words], folder, environment)
    (trace,) = traces(path.read_bytes().splitlines())
    path.unlink()
    return _parts(trace)


def _parts(trace: Trace) -> tuple[int, int]:
    found = wait(trace)
    return found.total, found.unnamed
