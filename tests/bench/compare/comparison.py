"""Git, hg, brz, svn and ours side by side: the same operations on the same history, on the same links."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.compare import history
from bench.compare.links import LINES, Line
from bench.compare.site import Place
from bench.peers.base import OPERATIONS, Act, Peer
from bench.peers.brz import Brz
from bench.peers.git import Git
from bench.peers.hg import Hg
from bench.peers.ours import Ours, OursByBrz
from bench.peers.svn import Svn
from bench.report import circumstances
from bench.trips import line
from netem.meter import Slope
from netem.packets.errors import Unavailable
from smartserver.cli.errors import CommandError
from smartserver.cli.servers import Say, Workspace, attempt, run

PEERS: tuple[type[Peer], ...] = (Ours, OursByBrz, Git, Hg, Brz, Svn)
"""In the order they are shown."""

RTTS = (0.1, 0.2, 0.3)
"""Seconds: long enough that a slope shows what is not counted, short enough for 330 round trips at each."""

STARTED = "started"
"""What is kept of a site before any operation."""


@dataclass
class Cost:
    """One operation of one tool on one link, over all runs."""

    network: str
    peer: str
    operation: str
    counted: list[int] = field(default_factory=list)
    """Round trips of each run."""
    points: list[tuple[float, float]] = field(default_factory=list)
    """RTT and seconds of each run."""
    bytes_up: int = 0
    bytes_down: int = 0

    @property
    def rounds(self) -> int:
        """Round trips: those of the run in the middle."""
        return statistics.median_low(self.counted)

    @property
    def slope(self) -> Slope | None:
        """The line through the shortest run at each RTT; None for fewer than three."""
        return line(self.points)

    def seconds(self, rtt: float) -> float:
        """The shortest run at an RTT."""
        return min(seconds for at, seconds in self.points if at == rtt)


@dataclass
class Comparison:
    """All that was measured."""

    rtts: tuple[float, ...]
    repeat: int
    peers: list[type[Peer]] = field(default_factory=list)
    networks: list[type[Line]] = field(default_factory=list)
    costs: dict[tuple[str, str, str], Cost] = field(default_factory=dict)
    """By network, tool and operation."""
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What could not be measured, and why."""
    problems: list[str] = field(default_factory=list)
    """What was done and came out wrong."""
    late: dict[str, float] = field(default_factory=dict)
    """Seconds by which each network's emulator was late at the most."""
    loads: list[float] = field(default_factory=list)
    """The machine's load before each operation."""
    circumstances: str = ""

    def add(self, network: str, peer: str, operation: str) -> Cost:
        """The cost of this, begun anew if there is none."""
        return self.costs.setdefault((network, peer, operation), Cost(network, peer, operation))

    def operations(self) -> list[str]:
        """Those of which there is anything."""
        found = {operation for _, _, operation in self.costs}
        return [operation for operation in OPERATIONS if operation in found]

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "rtts": self.rtts,
            "repeat": self.repeat,
            "circumstances": self.circumstances,
            "versions": self.versions,
            "notes": self.notes,
            "problems": self.problems,
            "late_seconds": self.late,
            "loads": self.loads,
            "costs": [
                {
                    "network": cost.network,
                    "peer": cost.peer,
                    "operation": cost.operation,
                    "rounds": cost.rounds,
                    "slope": round(slope.rounds, 3) if (slope := cost.slope) else None,
                    "residual": round(slope.residual, 4) if slope else None,
                    "bytes_up": cost.bytes_up,
                    "bytes_down": cost.bytes_down,
                    "counted": cost.counted,
                    "points": [[rtt, round(seconds, 4)] for rtt, seconds in cost.points],
                }
                for cost in self.costs.values()
            ],
        }


def names() -> list[str]:
    """What `only` may name: tools, networks, operations."""
    return [*(peer.name for peer in PEERS), *(network.name for network in LINES), *OPERATIONS]


def run_compare(rtts: Sequence[float], repeat: int, only: Collection[str], tools: Path | None, say: Say) -> Comparison:
    """Run every operation of every tool on each link, at each RTT, `repeat` times.

    `only`: the tools, networks and operations that are wanted, of each kind all if none is named. `tools`: where
    programs are looked for first. What is missing is a note, and what goes wrong a problem; neither ends it.
    """
    found = Comparison(tuple(sorted(set(rtts))), repeat)
    chosen = [[name for name in kind if name in only] or list(kind) for kind in (
        [peer.name for peer in PEERS], [network.name for network in LINES], OPERATIONS,
    )]  # fmt: skip
    path = os.pathsep.join(
        [str(Path(sys.executable).parent), *([str(tools)] if tools else []), os.environ.get("PATH", os.defpath)]
    )
    with Workspace("compare") as work:
        fixtures = work.folder / "fixtures"
        fixtures.mkdir()
        history.write(fixtures, work.environment("fixtures"))
        for peer in PEERS:
            if peer.name in chosen[0] and _convert(found, peer, work, fixtures, path, say):
                found.peers.append(peer)
        for network in LINES:
            if network.name not in chosen[1]:
                continue
            for peer in found.peers:
                try:
                    _measure(found, network, peer, work.folder, fixtures, path, chosen[2], say)
                except Unavailable as why:
                    found.notes.append(f"{network.name}: {why}")
                    break
                except CommandError as wrong:
                    found.problems.append(f"{network.name}, {peer.label}: {wrong}")
            else:
                found.networks.append(network)
    found.circumstances = circumstances()
    return found


def _convert(found: Comparison, peer: type[Peer], work: Workspace, fixtures: Path, path: str, say: Say) -> bool:
    """Make the history in a tool's form; whether it can be compared."""
    if lacking := peer.lacking(path):
        found.notes.append(f"{peer.label} is not here: {', '.join(lacking)} is not installed")
        return False
    say(f"history for {peer.label}")
    environment = work.environment(peer.name) | {"PATH": path} | dict(peer.settings(work.folder, path))
    try:
        peer.convert(lambda *command: run(command, fixtures, environment), fixtures)
    except CommandError as wrong:
        found.problems.append(f"{peer.label}: {wrong}")
        return False
    said = attempt(list(peer.version()), None, environment).stdout.splitlines()
    found.versions[peer.name] = said[0].strip() if said else "unknown"
    return True


def _measure(
    found: Comparison, network: type[Line], peer: type[Peer], folder: Path, fixtures: Path, path: str,
    operations: Sequence[str], say: Say,
) -> None:  # fmt: skip
    """All operations of one tool on one link."""
    with ExitStack() as stack:
        work = stack.enter_context(Workspace(f"compare-{network.name}-{peer.name}"))
        link = stack.enter_context(network())
        link.reserve()
        place = Place(work, work.folder, peer, link, path)
        subject = peer(place, fixtures)
        link.serve(work, subject.server, place.environment("server"))
        subject.fill()
        place.keep(STARTED)
        acts = subject.acts()
        for operation in operations:
            if operation not in acts:
                continue
            say(f"{network.name}, {peer.label}: {operation}")
            place.put_back(STARTED)
            found.loads.append(os.getloadavg()[0])
            cost = found.add(network.name, peer.name, operation)
            try:
                acts[operation].before()
                place.keep(operation)
                for rtt in [rtt for _ in range(found.repeat) for rtt in found.rtts]:
                    place.put_back(operation)
                    late = _once(place, link, acts[operation], rtt, cost)
                    found.late[network.name] = max(found.late.get(network.name, 0.0), late)
                place.forget(operation)
            except CommandError as wrong:
                found.problems.append(f"{network.name}, {peer.label}, {operation}: {wrong}")
                del found.costs[network.name, peer.name, operation]


def _once(place: Place, link: Line, act: Act, rtt: float, cost: Cost) -> float:
    """One run; how late the emulator was.

    Raises:
        CommandError: it did not come out as it must.
    """
    link.change(rtt)
    link.take()
    done = place.attempt("client", *act.command, folder=act.folder)
    counts = link.take()
    link.change(0.0)
    for wrong in wrongs(act, done.status, done.stderr):
        raise CommandError(f"{' '.join(act.command)}: {wrong}")
    one, other = act.same()
    if not one or one != other:
        raise CommandError(f"{' '.join(act.command)}: came to {one!r}, expected {other!r}")
    cost.counted.append(counts.rounds)
    cost.points.append((rtt, done.seconds))
    cost.bytes_up, cost.bytes_down = counts.bytes_up, counts.bytes_down
    return done.late


def wrongs(act: Act, status: int, stderr: str) -> Iterator[str]:
    """What is wrong with how a command ended."""
    if status != act.status if act.status is not None else status == 0:
        yield f"status {status}, expected {'a refusal' if act.status is None else act.status}: {stderr.strip()}"
    elif act.says not in stderr:
        yield f"expected {act.says!r}, it said: {stderr.strip()}"
