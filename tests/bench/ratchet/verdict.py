"""What one command cost on one side, and whether ours cost more than it may."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bench.ratchet.rows import Row
from netem.counter import Counts
from netem.units import plural
from smartserver.trace.text import size

CLOSING = re.compile(r"^HPSS calls: (\d+) \((\d+) vfs\) .*\n?", re.MULTILINE)
"""What `-Dhpss` says at the end of a command, once for each connection."""


@dataclass(frozen=True)
class Figures:
    """What a command cost."""

    calls: int
    vfs: int
    rounds: int
    """On the link, as if its connections had been open."""
    handshakes: int
    """Round trips that opening connections added."""
    bytes_up: int
    bytes_down: int

    @property
    def bytes(self) -> int:
        """Both ways."""
        return self.bytes_up + self.bytes_down


def figures(counts: Counts, stderr: str) -> Figures:
    """Of what passed the link, and what the command said."""
    said = [(int(calls), int(vfs)) for calls, vfs in CLOSING.findall(stderr)]
    return Figures(
        sum(calls for calls, _ in said),
        sum(vfs for _, vfs in said),
        counts.rounds_without_handshake,
        counts.handshake_rounds,
        counts.bytes_up,
        counts.bytes_down,
    )


def excesses(row: Row, ours: Figures, stock: Figures | None) -> Iterator[str]:
    """In what ours cost more than it may."""
    if ours.rounds > row.budget:
        yield f"{plural(ours.rounds, 'round trip')}, budget {row.budget}"
    if ours.handshakes > 1:
        yield f"{ours.handshakes} handshakes"
    if ours.vfs:
        yield plural(ours.vfs, "VFS call")
    if row.cold and stock is not None and ours.bytes > stock.bytes * row.times:
        yield f"{size(ours.bytes)}, stock {size(stock.bytes)}"
