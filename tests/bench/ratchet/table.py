"""The table in markdown, and its place in a page."""

from __future__ import annotations

from collections.abc import Iterator

from bench.ratchet.measure import Compared, Ratchet
from bench.ratchet.verdict import Figures
from netem.units import plural
from smartserver.trace.text import size

BEGIN = "<!-- Begin: written by `bench ratchet --write`; do not edit. -->"
END = "<!-- End of what is written by `bench ratchet --write`. -->"

HEAD = ("command", "was", "bzr:// calls", "trips", "up / down", "hpss:// calls", "trips", "up / down", "budget", "")


def markdown(found: Ratchet) -> str:
    """The table, then what must be known to read it."""
    return "\n".join([*_table(found), "", *(f"- {note}." for note in notes(found))])


def _table(found: Ratchet) -> Iterator[str]:
    yield "| " + " | ".join(HEAD) + " |"
    yield "|---" * len(HEAD) + "|"
    for each in found.rows:
        row = each.row
        cells = [row.name, "" if row.old is None else str(row.old), *_cells(each.stock), *_cells(each.ours)]
        yield "| " + " | ".join([*cells, str(row.budget), verdict(each)]) + " |"


def _cells(cost: Figures | None) -> list[str]:
    """`9 (2 vfs)`, `9 + 1`, `1.2 KB / 145.0 KB`."""
    if cost is None:
        return ["-", "-", "-"]
    calls = f"{cost.calls} ({cost.vfs} vfs)" if cost.vfs else str(cost.calls)
    return [calls, f"{cost.rounds} + {cost.handshakes}", f"{size(cost.bytes_up)} / {size(cost.bytes_down)}"]


def verdict(each: Compared) -> str:
    """One word, or what is wrong."""
    return "MISSED: " + "; ".join(each.problems) if each.problems else "ok"


def notes(found: Ratchet) -> list[str]:
    """What was measured on, and how it came out."""
    ours = [each.ours for each in found.rows if each.ours is not None]
    both = [each for each in found.rows if each.ours is not None and each.stock is not None]
    stock = sum(each.stock.rounds for each in both if each.stock is not None)
    more = [each.row.name for each in both if each.stock and each.ours and each.ours.bytes > each.stock.bytes]
    return [
        f"History: {found.about}. Breezy {found.version} on both sides; {found.circumstances}",
        "was: the calls Breezy's own `test_vfs_ratchet` asserts; trips: round trips on the link + those of handshakes",
        f"{len(ours)} of {plural(len(found.rows), 'command')} are done over hpss://: "
        f"{plural(sum(cost.rounds for cost in ours), 'round trip')} where bzr:// takes {stock}, "
        f"{plural(sum(cost.vfs for cost in ours), 'VFS call')}",
        *([f"More bytes over hpss://: {'; '.join(more)}"] if more else []),
    ]
