"""Git, hg, brz, svn and ours side by side: the same operations on the same history, on the same links."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from bench import histories, options
from bench.links import LINES, Line, measured
from bench.peers.base import CLIENT, OPERATIONS, Act, Peer, Place, wrongs
from bench.peers.brz import Brz
from bench.peers.git import Git
from bench.peers.hg import Hg
from bench.peers.ours import Ours, OursByBrz, OursByHg
from bench.peers.svn import Svn
from bench.picture import svg
from bench.report import Runs, circumstances, finish, listed, say, table
from netem.meter import MOST_RESIDUAL
from netem.packets.errors import Unavailable
from netem.units import plural
from smartserver.cli.errors import CommandError
from smartserver.cli.servers import Workspace, attempt, run

PEERS: tuple[type[Peer], ...] = (Ours, OursByBrz, OursByHg, Git, Hg, Brz, Svn)
"""In the order they are shown."""

RTTS = (0.1, 0.2, 0.3)
"""Seconds: long enough that a slope shows what is not counted, short enough for 330 round trips at each."""

PICTURE = Path("doc/compare.svg")

CLOSE = 1
"""Round trips by which two instruments may differ."""

STARTED = "started"
"""What is kept of a site before any operation."""


@dataclass
class Comparison:
    rtts: tuple[float, ...]
    repeat: int
    peers: list[type[Peer]] = field(default_factory=list)
    networks: list[type[Line]] = field(default_factory=list)
    costs: dict[tuple[str, str, str], Runs] = field(default_factory=dict)
    """By network, tool and operation; the seconds are those of the command alone."""
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

    def operations(self) -> list[str]:
        """Those of which there is anything."""
        found = {operation for _, _, operation in self.costs}
        return [operation for operation in OPERATIONS if operation in found]

    def as_json(self) -> dict[str, Any]:
        kept = ("rtts", "repeat", "circumstances", "versions", "notes", "problems", "loads")
        costs = [
            {
                **dict(zip(("network", "peer", "operation"), key, strict=True)),
                "rounds": runs.rounds,
                "counted": [cost.round_trips for _, cost in runs.costs],
                "slope": round(slope.rounds, 3) if (slope := runs.slope) else None,
                "residual": round(slope.residual, 4) if slope else None,
                "points": [[rtt, round(cost.seconds, 4)] for rtt, cost in runs.costs],
                "bytes_up": runs.costs[-1][1].bytes_up,
                "bytes_down": runs.costs[-1][1].bytes_down,
            }
            for key, runs in self.costs.items()
        ]
        return {**{name: getattr(self, name) for name in kept}, "late_seconds": self.late, "costs": costs}


KINDS = ([peer.name for peer in PEERS], [network.name for network in LINES], list(OPERATIONS))
NAMES = [name for kind in KINDS for name in kind]
"""What `--only` may name: tools, networks, operations."""


def measure(rtts: Sequence[float], repeat: int, only: Collection[str], tools: Path | None) -> Comparison:
    """Run every operation of every tool on each link, at each RTT, `repeat` times.

    `only`: the tools, networks and operations that are wanted, of each kind all if none is named. `tools`: where
    programs are looked for first. What is missing is a note, and what goes wrong a problem; neither ends it.
    """
    found = Comparison(tuple(sorted(set(rtts))), repeat)
    peers, networks, operations = [[name for name in kind if name in only] or kind for kind in KINDS]
    path = os.pathsep.join(
        [str(Path(sys.executable).parent), *([str(tools)] if tools else []), os.environ.get("PATH", os.defpath)]
    )
    with Workspace("compare") as work:
        fixtures = work.folder / "fixtures"
        fixtures.mkdir()
        histories.write(fixtures, work.environment("fixtures"))
        found.peers = [each for each in PEERS if each.name in peers and _convert(found, each, work, fixtures, path)]
        for network in LINES:
            if network.name not in networks:
                continue
            for peer in found.peers:
                try:
                    _measure(found, network, peer, fixtures, path, operations)
                except Unavailable as why:
                    found.notes.append(f"{network.name}: {why}")
                    break
                except CommandError as wrong:
                    found.problems.append(f"{network.name}, {peer.label}: {wrong}")
            else:
                found.networks.append(network)
    found.circumstances = circumstances()
    return found


def _convert(found: Comparison, peer: type[Peer], work: Workspace, fixtures: Path, path: str) -> bool:
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
    said = attempt(peer.version, None, environment).stdout.splitlines()
    found.versions[peer.name] = said[0].strip() if said else "unknown"
    return True


def _measure(
    found: Comparison, network: type[Line], peer: type[Peer], fixtures: Path, path: str, operations: Sequence[str]
) -> None:
    with Workspace(f"compare-{network.name}-{peer.name}") as work, network() as link:
        link.reserve()
        place = Place(work, work.folder, peer, link, path)
        subject = peer(place, fixtures)
        link.serve(work, subject.server, place.environment("server"))
        subject.fill()
        place.keep(STARTED)
        acts = subject.acts()
        for operation in [each for each in operations if each in acts]:
            say(f"{network.name}, {peer.label}: {operation}")
            place.put_back(STARTED)
            found.loads.append(os.getloadavg()[0])
            cost = found.costs[network.name, peer.name, operation] = Runs()
            try:
                acts[operation].before()
                place.keep(operation)
                for rtt in found.rtts * found.repeat:
                    place.put_back(operation)
                    late = _once(place, link, acts[operation], rtt, cost)
                    found.late[network.name] = max(found.late.get(network.name, 0.0), late)
                place.forget(operation)
            except CommandError as wrong:
                found.problems.append(f"{network.name}, {peer.label}, {operation}: {wrong}")
                del found.costs[network.name, peer.name, operation]


def _once(place: Place, link: Line, act: Act, rtt: float, cost: Runs) -> float:
    done, run = measured(link.network, rtt, lambda: place.attempt(CLIENT, *act.command, folder=act.folder))
    for wrong in wrongs(act.status, act.says, done.status, done.stderr):
        raise CommandError(f"{' '.join(act.command)}: {wrong}")
    one, other = act.same()
    if not one or one != other:
        raise CommandError(f"{' '.join(act.command)}: came to {one!r}, expected {other!r}")
    cost.costs.append((rtt, replace(run, seconds=done.seconds)))
    return done.late


def markdown(found: Comparison) -> str:
    """A table for each network, then what must be known to read them."""
    return "\n\n".join([*(_table(found, network) for network in found.networks), listed(notes(found))])


def _table(found: Comparison, network: type[Line]) -> str:
    peers = [peer for peer in found.peers if any(key[:2] == (network.name, peer.name) for key in found.costs)]
    late = found.late.get(network.name, 0.0) * 1000
    rows = {name: [found.costs.get((network.name, peer.name, name)) for peer in peers] for name in found.operations()}
    cells = [[name, *(cell(found, cost) for cost in costs)] for name, costs in rows.items() if any(costs)]
    about = (
        f"**On {network.about}.** Each cell: {shown_are(found, network.name)}; {network.lateness.format(late=late)}."
    )
    return f"{about}\n\n{table(['operation', *(peer.label for peer in peers)], cells)}"


def shown_are(found: Comparison, network: str) -> str:
    most = max(found.rtts) * 1000
    slope = "/ slope of wall time over RTT " if len(found.rtts) > 2 else ""
    rtts = ", ".join(f"{rtt * 1000:g}" for rtt in found.rtts)
    made = {len(runs.costs) // len(found.rtts) for key, runs in found.costs.items() if key[0] == network} or {0}
    fewest = f"{min(made)} or " if len(made) > 1 else ""
    runs = f"RTT {rtts} ms, {fewest}{plural(max(made), 'run')} each"
    return f"round trips counted with the handshake {slope}/ seconds at {most:g} ms ({runs}, the shortest counts)"


def most_off(found: Comparison) -> float:
    """Seconds a run may lie off the line, before its slope is in doubt."""
    return MOST_RESIDUAL * max(found.rtts)


def cell(found: Comparison, cost: Runs | None) -> str:
    """`3 / 3.02 / 0.94 s`; a dash for what a tool cannot do."""
    if cost is None:
        return "-"
    slope = ""
    if cost.slope:
        doubt = "~" if cost.slope.residual > most_off(found) else ""
        slope = f" / {doubt}{round(cost.slope.rounds, 1) + 0.0:.1f}"  # The sum knows no -0.0.
    return f"{cost.rounds}{slope} / {cost.seconds(max(found.rtts)):.2f} s"


def notes(found: Comparison) -> list[str]:
    """Versions, circumstances, how operations are mapped, what is missing, and where an earlier count was another."""
    versions: dict[str, str] = {}  # Git's, which two may share, once.
    for peer in found.peers:
        versions.setdefault(found.versions.get(peer.name, ""), peer.name)
    said = [f"svn {version}" if version[:1].isdigit() else version for version in versions if version]
    doubt = f"~: a run lies over {most_off(found) * 1000:.0f} ms off the line, so that the slope is not to be trusted"
    load = f"; load {min(found.loads):.1f} to {max(found.loads):.1f} while it ran" if found.loads else ""
    doubted = any(cost.slope and cost.slope.residual > most_off(found) for cost in found.costs.values())
    return [
        f"{', '.join(said)}; {found.circumstances}{load}",
        *[note for peer in found.peers for note in peer.notes],
        *agreement(found),
        *([doubt] if doubted else []),
        *found.notes,
    ]


def agreement(found: Comparison) -> list[str]:
    """How counts on the proxy lie beside those another instrument made of another history."""
    compared, off = 0, []
    for peer in found.peers:
        for operation, earlier in zip(OPERATIONS, peer.earlier, strict=False):
            cost = found.costs.get(("proxy", peer.name, operation))
            if cost is not None:
                compared += 1
                if abs(cost.rounds - earlier) > CLOSE:
                    off.append(f"{peer.label} {operation} ({cost.rounds}, then {earlier})")
    if not compared:
        return []
    text = (
        f"{compared - len(off)} of {compared} counts on the proxy are within one round trip of an earlier instrument's"
    )
    return [text + (f"; not: {', '.join(off)}" if off else "")]


@click.command()
@options.rtts("three or more for a slope (100, 200 and 300 ms)")
@options.number("--repeat", 2, "Runs at each RTT.")
@options.only(NAMES, "NAME", "Some tools, networks or operations: hg, packets, clone")
@options.tools("Where programs are looked for before PATH.")
@options.outputs("doc/performance.md and doc/compare.svg")
def command(
    rtts: Sequence[float], repeat: int, only: Sequence[str], tools: Path | None, as_json: bool, write: bool
) -> None:
    """Git, hg, brz, svn and ours side by side: round trips and seconds of the same operations on the same links.

    Each tool has the same history of 100 revisions and 50 files, and its own server; the links are a proxy, which
    counts, and packets of real TCP between two namespaces. A tool that is not installed is left out and named. Every
    outcome is looked at: exit status 1 when one is wrong. All of it takes about 20 minutes; with one RTT of 20 ms
    trips are only counted, in two. Another load on the machine falsifies slopes.

    \b
    bench compare --rtt 20ms --repeat 1 --only proxy
    bench compare --only git --only hpss --only clone
    """
    pages = options.Pages("compare", *([options.PERFORMANCE] if write else []))
    found = measure(rtts or RTTS, repeat, only, tools)
    if write and found.costs:
        pages.write(f"![Round trips of each operation, and seconds against RTT]({PICTURE.name})\n\n{markdown(found)}")
        PICTURE.write_text(svg(found), encoding="utf-8")
    finish(found, markdown(found), as_json=as_json)
