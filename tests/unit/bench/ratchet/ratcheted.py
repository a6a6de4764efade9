"""A measurement as if it had been made: three commands, one of which failed on our side."""

from __future__ import annotations

from bench.ratchet import Compared, Figures, Ratchet
from bench.ratchet_rows import ROWS, Row

from smartserver.cli.servers import LinkCost


def row(name: str) -> Row:
    (found,) = [row for row in ROWS if row.name == name]
    return found


def figures(calls: int, vfs: int, rounds: int, up: int, down: int, handshakes: int = 1) -> Figures:
    return Figures(calls, vfs, LinkCost(rounds + handshakes, 0.5, up, down, handshakes))


def measured() -> Ratchet:
    return Ratchet(
        [
            Compared(row("push"), figures(15, 0, 15, 21_000, 7_000), figures(1, 0, 1, 1_800, 200)),
            Compared(row("cat"), figures(12, 2, 12, 500, 41_000), figures(1, 0, 1, 100, 42_000)),
            Compared(row("reconcile"), figures(17, 0, 17, 1_800, 7_900), problems=["it failed"]),
        ],
        "300 revisions",
        "3.3.23",
        "2 cores",
    )
