"""A measurement as if it had been made: three commands, one of which failed on our side."""

from __future__ import annotations

from bench.ratchet import Compared, Figures, Ratchet
from bench.ratchet_rows import ROWS, Row


def row(name: str) -> Row:
    (found,) = [row for row in ROWS if row.name == name]
    return found


def measured() -> Ratchet:
    return Ratchet(
        [
            Compared(row("push"), Figures(15, 0, 15, 1, 21_000, 7_000), Figures(1, 0, 1, 1, 1_800, 200)),
            Compared(row("cat"), Figures(12, 2, 12, 1, 500, 41_000), Figures(1, 0, 1, 1, 100, 42_000)),
            Compared(row("reconcile"), Figures(17, 0, 17, 1, 1_800, 7_900), problems=["it failed"]),
        ],
        "300 revisions",
        "3.3.23",
        "2 cores",
    )
