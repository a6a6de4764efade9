"""Pushes on fresh and on held connections over real TCP: what the handshake costs, and what slow start does.

A connection is held between commands by the user's agent, and by a program that pushes several times.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from bench import options
from bench.links import Across, across, agent
from bench.report import Progress, Report, line, median
from netem.link import Link
from netem.meter import Slope
from netem.packets.network import CLIENT
from netem.tcp_model import TcpModel
from smartserver.cli.errors import CommandError
from smartserver.cli.histories import add_commit, generate
from smartserver.cli.operations import BRANCH, KINDS, VCS, Commits
from smartserver.cli.servers import Workspace
from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, Outcome, RefUpdate
from smartserver.client.url import parse
from smartserver.trace.text import size
from smartserver.verbs.rules import Rule

NAME = "project"
FRESH, HELD, PAUSED = "fresh", "held", "paused"
BY_ITSELF, FAST_OPENED, BY_AGENT = "fresh connection", "fresh connection, Fast Open", "connection that the agent held"
TRIPS: Mapping[str, int] = {BY_ITSELF: 2, FAST_OPENED: 1, BY_AGENT: 1}
"""Of a push, by how a command comes by its connection."""
SOON = 0.004
TOLERANCE = 0.05
FAST_OPEN = ("net.ipv4.tcp_fastopen", "3")
IDLE_RESTART = "net.ipv4.tcp_slow_start_after_idle"

RTTS = (0.2, 0.5, 0.9)
"""Seconds. Under a second: that is after how long TCP sends a SYN again."""

LARGE = 1_000_000
LARGE_RTT = 0.5
HELD_PUSHES = 5
PAUSE = 10.0
"""Seconds: a connection forgets half of its window each RTO, which is somewhat more than one RTT."""


@click.command()
@options.number("--repeat", 5, "Pushes at each RTT.")
@options.rtts()
def command(repeat: int, rtts: Sequence[float]) -> None:
    """Pushes over real TCP: 2 round trips, 1 with Fast Open or the agent; and slow start of a large one.

    Client and server are in network namespaces with a link of packets between them (Linux, as root or where users may
    make namespaces). Takes two minutes. Another load on the machine falsifies slopes.

    \b
    bench cold
    bench cold --repeat 1 --rtt 100ms
    """
    progress = Progress()
    report = Report("pushes across a link of packets, by the clock", "")
    with Workspace("bench") as work:
        environment = work.environment("bench", {"gc.auto": "0"})
        source = work.folder / "source.git"
        generate(source, environment, count=3)
        with across(work, Link(SOON), [FAST_OPEN]) as there:
            with agent(there, environment) as held:
                ways = {BY_ITSELF: environment, FAST_OPENED: {**environment, "SMARTSERVER_FAST_OPEN": "1"}}
                _small(
                    there, report, source, {**ways, BY_AGENT: {**environment, **held}}, repeat, rtts or RTTS, progress
                )
            _large(there, report, progress)
    report.finish()


def _small(
    there: Across, report: Report, source: Path, ways: Mapping[str, Mapping[str, str]], repeat: int,
    rtts: Sequence[float], progress: Progress,
) -> None:  # fmt: skip
    """`ways`: the environment of each."""
    count = 0
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    trips = dict.fromkeys(ways, 0)

    def push(environment: Mapping[str, str]) -> tuple[float, int]:
        nonlocal count
        count += 1
        add_commit(source, environment, "main", {"file": b"number %d\n" % count})
        there.network.take()
        seconds, _ = there.git(source, environment, "push", "--quiet", there.url(NAME), "main")
        return seconds, there.network.take().rounds

    for environment in (*ways.values(), *ways.values()):  # They make the repository, fetch the cookie, start the agent.
        push(environment)
    for turn in range(repeat):
        for rtt in rtts:
            progress.step(f"one revision, RTT {rtt:g} s, {turn + 1} of {repeat}")
            there.network.change(Link(rtt))
            for way, environment in ways.items():
                seconds, rounds = push(environment)
                found[way].append((rtt, seconds))
                trips[way] = max(trips[way], rounds)
    for way, expected in TRIPS.items():
        slope = line(found[way])
        ok = trips[way] == expected and (slope is None or abs(slope.rounds / expected - 1) <= TOLERANCE)
        shown = f"{trips[way]}{_shown(slope)}"
        report.add(f"git push of one revision, {way}", shown, "", f"{expected} +- {TOLERANCE:.0%}", ok)


def _shown(slope: Slope | None) -> str:
    return "" if slope is None else f", {slope.rounds:.2f} RTT + {slope.intercept:.2f} s"


def _large(there: Across, report: Report, progress: Progress) -> None:
    there.network.change(Link(LARGE_RTT))
    expected = 1 + TcpModel().rounds(LARGE)
    for restart, words in ((1, "as Linux comes"), (0, f"{IDLE_RESTART.rpartition('.')[2]} 0")):
        there.network.setting(IDLE_RESTART, str(restart), side=CLIENT)
        progress.step(f"pushes of {size(LARGE)}, {words}")
        pushed = there.ask("bench.cold", there.url(f"large{restart}"), str(LARGE), str(HELD_PUSHES), str(PAUSE))
        rounds: dict[object, list[float]] = {}
        for name, seconds in pushed:
            assert isinstance(seconds, float)
            rounds.setdefault(name, []).append(seconds / LARGE_RTT)
        what = f"push of {size(LARGE)} by the library, {words}: "
        (fresh,), held, (paused,) = rounds[FRESH], rounds[HELD], rounds[PAUSED]
        report.add(f"{what}fresh connection", f"{fresh:.2f} RTT", "", f"{expected} +- 1", abs(fresh - expected) <= 1.5)
        shown = ", ".join(f"{each:.2f}" for each in held)
        report.add(f"{what}held one", f"{shown} RTT", "", "fewer", median(held) < math.floor(fresh))
        report.add(f"{what}held one, after {PAUSE:g} s", f"{paused:.2f} RTT")


def pushes(url: str, content: int, count: int, pause: float) -> list[tuple[str, float]]:
    """Push so many bytes so often on one connection, before the last time after a pause; a name and seconds of each.

    `command` runs it as a program on the near side of a link. What is made before the first push is not counted.
    """
    location = parse(url)
    commits = Commits()
    found = []
    with Client(lambda: TcpMedium(location.host, location.port), agent="bench") as client:
        remote = RemoteRepository(client, location.path, Knowledge(None, url))

        def push(length: int) -> float:
            commit = commits.next(length)
            rule = Rule.FF if commit.parents else Rule.FORCE
            new = NewRepository(VCS, KINDS, {"HEAD": b"refs/heads/main"})
            begun = time.monotonic()
            (done,) = remote.push(PushRequest([RefUpdate(BRANCH, commit.id, rule)], commit, new)).refs
            seconds = time.monotonic() - begun
            if done.outcome is not Outcome.DONE:
                raise CommandError(f"a push was refused: {done.error}")
            return seconds

        push(8)
        client.close()
        found.append((FRESH, push(content)))
        found += [(HELD, push(content)) for _ in range(count)]
        if pause:
            time.sleep(pause)
            found.append((PAUSED, push(content)))
    return found


if __name__ == "__main__":
    print(json.dumps(pushes(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))))
