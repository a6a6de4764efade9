"""Pushes on fresh and on held connections over real TCP: what the handshake costs, and what slow start does."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from bench import options
from bench.links import Across, across
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
    """Pushes on a fresh connection over real TCP: 2 round trips, 1 with Fast Open; and slow start of a large one.

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
            _small(there, report, source, environment, repeat, rtts or RTTS, progress)
            _large(there, report, progress)
    report.finish()


def _small(
    there: Across, report: Report, source: Path, environment: Mapping[str, str], repeat: int, rtts: Sequence[float],
    progress: Progress,
) -> None:  # fmt: skip
    count = 0
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    trips: dict[bool, int] = {False: 0, True: 0}

    def push(*, fast_open: bool) -> tuple[float, int]:
        nonlocal count
        count += 1
        add_commit(source, environment, "main", {"file": b"number %d\n" % count})
        there.network.take()
        asked = {**environment, "SMARTSERVER_FAST_OPEN": f"{fast_open:d}"}
        seconds, _ = there.git(source, asked, "push", "--quiet", there.url(NAME), "main")
        return seconds, there.network.take().rounds

    for _ in range(2):  # The first makes the repository, and fetches the cookie.
        push(fast_open=True)
    for turn in range(repeat):
        for rtt in rtts:
            progress.step(f"one revision, RTT {rtt:g} s, {turn + 1} of {repeat}")
            there.network.change(Link(rtt))
            for fast_open in (False, True):
                seconds, rounds = push(fast_open=fast_open)
                found[fast_open].append((rtt, seconds))
                trips[fast_open] = max(trips[fast_open], rounds)
    for fast_open, what, expected in ((False, "", 2), (True, ", Fast Open", 1)):
        slope = line(found[fast_open])
        ok = trips[fast_open] == expected and (slope is None or abs(slope.rounds / expected - 1) <= TOLERANCE)
        shown = f"{trips[fast_open]}{_shown(slope)}"
        report.add(f"git push of one revision, fresh connection{what}", shown, "", f"{expected} +- {TOLERANCE:.0%}", ok)


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
