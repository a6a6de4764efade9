"""Large pushes on fresh and on held connections over real TCP: what slow start does."""

from __future__ import annotations

import json
import math
import sys
import time

import click

from bench.links import across
from bench.report import Progress, Report, median
from netem.link import Link
from netem.packets.network import CLIENT
from netem.tcp_model import TcpModel
from smartserver.cli.errors import CommandError
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

FRESH, HELD, PAUSED = "fresh", "held", "paused"
IDLE_RESTART = "net.ipv4.tcp_slow_start_after_idle"

LARGE = 1_000_000
LARGE_RTT = 0.5
HELD_PUSHES = 5
PAUSE = 10.0
"""Seconds: a connection forgets half of its window each RTO, which is somewhat more than one RTT."""


@click.command()
def command() -> None:
    """Large pushes over real TCP, on fresh and on held connections: what slow start costs.

    Client and server are in network namespaces with a link of packets between them (Linux, as root or where users may
    make namespaces). Takes a minute.
    """
    progress = Progress()
    report = Report("pushes across a link of packets, by the clock", "")
    expected = 1 + TcpModel().rounds(LARGE)
    with Workspace("bench") as work, across(work, Link(LARGE_RTT)) as there:
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
            report.add(
                f"{what}fresh connection", f"{fresh:.2f} RTT", "", f"{expected} +- 1", abs(fresh - expected) <= 1.5
            )
            shown = ", ".join(f"{each:.2f}" for each in held)
            report.add(f"{what}held one", f"{shown} RTT", "", "fewer", median(held) < math.floor(fresh))
            report.add(f"{what}held one, after {PAUSE:g} s", f"{paused:.2f} RTT")
    report.finish()


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
