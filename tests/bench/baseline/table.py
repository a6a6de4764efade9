"""The table in markdown, for the terminal and for two pages; and what each saved round trip was."""

from __future__ import annotations

from collections.abc import Iterator

from bench.baseline.measure import Baseline
from bench.baseline.rows import CONNECTING, ROWS, RPC, Row
from bench.baseline.ways import Way
from smartserver.trace.text import size

BEGIN = "<!-- Begin: written by `bench baseline --write`; do not edit. -->"
END = "<!-- End of what is written by `bench baseline --write`. -->"


def markdown(found: Baseline) -> str:
    """The table, then what must be known to read it."""
    return "\n".join([*_table(found), "", *(f"- {note}." for note in notes(found))])


def page(found: Baseline) -> str:
    """The same, and what became of the round trips."""
    saved = [f"**{row.name[0].upper()}{row.name[1:]}.** {row.saved}" for row in ROWS if row.saved]
    return "\n\n".join([markdown(found), *saved])


def _table(found: Baseline) -> Iterator[str]:
    head = ["operation"]
    for way in found.ways:
        head += [way.label, "bar", *(["Breezy"] if way.name != RPC else [])]
    yield "| " + " | ".join(head) + " |"
    yield "|---" * len(head) + "|"
    for row in ROWS:
        cells = [cell for way in found.ways for cell in _cells(found, row, way)]
        yield "| " + " | ".join([f"{row.name}{' *' if row.opened else ''}", *cells]) + " |"


def _cells(found: Baseline, row: Row, way: type[Way]) -> list[str]:
    """`38, 11.1 KB + 11.6 KB, 39.2 s`, its bar and Breezy's round trips; a dash for what there is no such thing of."""
    cost, bar, breezy = found.costs.get((row.name, way.name)), row.bars.get(way.name), row.breezy.get(way.name)
    if cost is None:
        cells = ["-", ""]
    else:
        missed = bar is not None and cost.rounds > bar
        connecting = 0 if row.opened else CONNECTING.get(way.name, 0)
        rounds = f"{cost.rounds} ({connecting} of them to connect)" if connecting else f"{cost.rounds}"
        cells = [
            f"{rounds}, {size(cost.bytes_up)} + {size(cost.bytes_down)}, {cost.seconds:.1f} s",
            "" if bar is None else f"{bar}{' MISSED' if missed else ''}",
        ]
    return cells if way.name == RPC else [*cells, "" if breezy is None else str(breezy)]


def notes(found: Baseline) -> list[str]:
    """How it was measured."""
    return [
        f"Each cell: round trips counted on the link, bytes up + down, seconds at {found.rtt * 1000:g} ms. git pushes "
        "and pulls, each command a fresh process with a fresh connection: its handshake, and SSH's login, are in the "
        "count. *: there they are not, the connection is open",
        "Breezy: round trips of Breezy 3.3 for the same operation over its own file verbs and over SFTP, as another "
        "instrument counted them on 300 revisions; a bar is a third of that. For put and append 2008 counted 3",
        "The link is `netem proxy`: on real TCP a file that takes more than 14,480 bytes with its request takes more "
        "round trips, by slow start; one that takes no more takes one there, too",
        "A count is an upper bound where answers come while something is still being sent, as at an RTT of a few "
        "milliseconds: what is sent after an answer is taken to have waited for it. So 1 MB by SFTP, whose pieces do "
        "not wait, counts as 3 to 5 at 2 ms, and as 2 from 20 ms on",
        found.circumstances,
    ]
