"""What was compared as tables in markdown, and its place in a page: between two marks that nothing else is between."""

from __future__ import annotations

from collections.abc import Iterator

from bench.compare.comparison import Comparison, Cost
from bench.compare.links import Line
from netem.meter import MOST_RESIDUAL
from netem.units import plural
from smartserver.cli.errors import CommandError

BEGIN = "<!-- Begin: written by `bench compare --write`; do not edit. -->"
END = "<!-- End of what is written by `bench compare --write`. -->"

CLOSE = 1
"""Round trips by which two instruments may differ."""


def page(found: Comparison, picture: str) -> str:
    """All of it; `picture` is the place of the picture, as the page names it."""
    parts = [f"![Round trips of each operation, and seconds against RTT]({picture})", markdown(found)]
    return "\n\n".join(parts)


def markdown(found: Comparison) -> str:
    """A table for each network, then what must be known to read them."""
    parts = ["\n".join(_table(found, network)) for network in found.networks]
    parts.append("\n".join(f"- {note}." for note in notes(found)))
    return "\n\n".join(parts)


def _table(found: Comparison, network: type[Line]) -> Iterator[str]:
    peers = [peer for peer in found.peers if any(key[:2] == (network.name, peer.name) for key in found.costs)]
    late = found.late.get(network.name, 0.0) * 1000
    yield f"**On {network.about}.** Each cell: {shown_are(found, network.name)}; {network.lateness.format(late=late)}."
    yield ""
    yield "| operation | " + " | ".join(peer.label for peer in peers) + " |"
    yield "|---" * (len(peers) + 1) + "|"
    for operation in found.operations():
        costs = [found.costs.get((network.name, peer.name, operation)) for peer in peers]
        if any(costs):
            yield f"| {operation} | " + " | ".join(cell(found, cost) for cost in costs) + " |"


def shown_are(found: Comparison, network: str) -> str:
    """What the figures of a cell are."""
    most = max(found.rtts) * 1000
    slope = "/ slope of wall time over RTT " if len(found.rtts) > 2 else ""
    rtts = ", ".join(f"{rtt * 1000:g}" for rtt in found.rtts)
    made = {len(cost.points) // len(found.rtts) for cost in found.costs.values() if cost.network == network} or {0}
    fewest = f"{min(made)} or " if len(made) > 1 else ""
    runs = f"RTT {rtts} ms, {fewest}{plural(max(made), 'run')} each"
    return f"round trips counted with the handshake {slope}/ seconds at {most:g} ms ({runs}, the shortest counts)"


def most_off(found: Comparison) -> float:
    """Seconds a run may lie off the line, before its slope is in doubt."""
    return MOST_RESIDUAL * max(found.rtts)


def cell(found: Comparison, cost: Cost | None) -> str:
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
        for operation, earlier in peer.earlier.items():
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


def put(text: str, inside: str, first: str = BEGIN, last: str = END) -> str:
    """The page with this between these marks.

    Raises:
        CommandError: it has not got them, or not in order.
    """
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise CommandError(f"the page lacks a line {(first if not begin else last)!r}")
    return f"{before}{first}\n\n{inside}\n\n{last}{after}"
