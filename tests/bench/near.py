"""Everyday commands of git, from exec to exit, over real TCP: ours with the user's agent, beside git's own server."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from bench import options
from bench.links import PORT, Across, across, agent, server
from bench.report import Progress, Report, median
from netem.link import Link
from netem.packets.network import SERVER
from smartserver.cli.errors import CommandError
from smartserver.cli.histories import generate
from smartserver.cli.servers import Workspace, run, serving_git

RTTS = (0.0, 0.001, 0.005, 0.02, 0.05, 0.1)
"""Seconds: from the same machine to another continent."""

NEAR = 0.02
"""Seconds of RTT below which ours may be slower, by a little."""

TIMES, MORE = 1.2, 0.025
"""How much slower: as many times, or seconds more, whichever is larger."""

TIME_TO_LISTEN = 10.0
TIME_TO_LOAD = 1.0
"""Seconds after which an agent that was just started has loaded everything."""

COMMANDS: Mapping[str, Sequence[str]] = {
    "push of one": ("push", "--quiet", "origin", "main"),
    "push of nothing": ("push", "--quiet", "origin", "main"),
    "fetch of one": ("fetch", "--quiet", "origin"),
    "fetch of nothing": ("fetch", "--quiet", "origin"),
    "ls-remote": ("ls-remote", "--quiet", "origin"),
}
"""In the order in which they are run, so that each finds what it is called after."""

COMMIT = ("commit", "--quiet", "--allow-empty", "-m", "one")


@dataclass(frozen=True)
class Side:
    """A way to a server, with two clones there."""

    name: str
    url: str
    environment: Mapping[str, str]
    near: Path
    """Whose commands are timed."""
    far: Path
    """Who pushes what the other fetches, on a branch of his own."""


@click.command()
@options.number("--repeat", 20, "Times each command is run at each RTT.")
@options.rtts()
def command(repeat: int, rtts: Sequence[float]) -> None:
    """Everyday commands of git over hpss://, with the agent and without, beside git://, from exec to exit; medians.

    Client and server are in network namespaces with a link of packets between them (Linux, as root or where users may
    make namespaces). Takes ten minutes. Another load on the machine falsifies it.

    \b
    bench near
    bench near --repeat 5 --rtt 0ms --rtt 20ms
    """
    progress = Progress()
    report = Report("commands of git across a link of packets, seconds from exec to exit", "git://")
    with (
        Workspace("bench") as work,
        across(work, Link(0.0)) as there,
        _daemon(there, work) as daemon,
        agent(there, work.environment("agent")) as held,
    ):
        sides = _sides(work, there, daemon, held)
        for rtt in rtts or RTTS:
            _compare(there, sides, rtt, repeat, report, progress)
    report.finish()


@contextmanager
def _daemon(there: Across, work: Workspace) -> Iterator[str]:
    """Git's own server beside ours: its URL."""
    served = work.folder / "served-git"
    served.mkdir()
    host, port = there.network.server_address, PORT + 1
    with server(there.network, serving_git(served, host, port), work.folder, work.environment("daemon")):
        deadline = time.monotonic() + TIME_TO_LISTEN
        while there.network.listening(SERVER) < 2:
            if time.monotonic() > deadline:
                raise CommandError(f"git daemon does not listen after {TIME_TO_LISTEN:g} s")
            time.sleep(0.01)
        yield f"git://{host}:{port}"


def _sides(work: Workspace, there: Across, daemon: str, held: Mapping[str, str]) -> list[Side]:
    source = work.folder / "source.git"
    generate(source, work.environment("source"), count=50)
    run(["git", "init", "--quiet", "--bare", str(work.folder / "served-git/near")], None, work.environment("source"))
    quiet = {"gc.auto": "0", "maintenance.auto": "0"}
    found = []
    for name, url, settings in (
        ("agent", there.url("near"), held), ("alone", there.url("alone"), {}), ("git", f"{daemon}/near", {})
    ):  # fmt: skip
        side = Side(
            name,
            url,
            {**work.environment(name, quiet), **settings},
            work.folder / f"{name}-1",
            work.folder / f"{name}-2",
        )
        there.git(source, side.environment, "push", "--quiet", url, "main")
        for clone in (side.near, side.far):
            there.git(work.folder, side.environment, "clone", "--quiet", "--branch", "main", url, str(clone))
        there.git(side.far, side.environment, "checkout", "--quiet", "-b", "other")
        found.append(side)
    return found


def _compare(there: Across, sides: Sequence[Side], rtt: float, repeat: int, report: Report, progress: Progress) -> None:
    there.network.change(Link(rtt))
    progress.step(f"RTT {rtt * 1000:g} ms")
    taken: dict[tuple[object, object], list[float]] = {}
    shown = [[each.name, dict(each.environment), str(each.near), str(each.far)] for each in sides]
    for name, what, seconds in there.ask("bench.near", json.dumps(shown), str(repeat)):
        assert isinstance(seconds, float)
        taken.setdefault((what, name), []).append(seconds)
    for what in COMMANDS:
        held, alone, git = (median(taken[what, side.name]) for side in sides)
        most = max(TIMES * git, git + MORE) if rtt < NEAR else git
        words = f"RTT {rtt * 1000:g} ms, {what} (without the agent {alone:.3f})"
        report.add(words, f"{held:.3f}", f"{git:.3f}", f"<= {most:.3f}", held <= most)


def turns(sides: Sequence[tuple[str, Mapping[str, str], str, str]], repeat: int) -> Iterator[tuple[str, str, float]]:
    """Run each command so often on each side (its name, environment and clones): side, command and seconds.

    `command` runs it as a program on the near side of a link. Programs that are started there one by one have each a
    mount namespace of its own, in which no agent serves them that was started by another.
    """
    environment = sides[0][1]
    run(["smartserver", "agent", "stop"], None, environment)
    run(["git", *COMMANDS["ls-remote"]], Path(sides[0][2]), environment)
    time.sleep(TIME_TO_LOAD)
    for turn in range(repeat):
        first = turn % len(sides)
        for name, environment, near, far in [*sides[first:], *sides[:first]]:
            for what, words in COMMANDS.items():
                if what == "push of one":
                    run(["git", *COMMIT], Path(near), environment)
                elif what == "fetch of one":
                    run(["git", *COMMIT], Path(far), environment)
                    run(["git", "push", "--quiet", "origin", "other"], Path(far), environment)
                begun = time.monotonic()
                run(["git", *words], Path(near), environment)
                yield name, what, time.monotonic() - begun


if __name__ == "__main__":
    print(json.dumps(list(turns(json.loads(sys.argv[1]), int(sys.argv[2])))))
