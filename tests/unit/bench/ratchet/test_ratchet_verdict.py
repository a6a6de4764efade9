"""bench.ratchet: what Breezy says it called, and what ours may cost."""

from __future__ import annotations

import pytest
from bench import ratchet
from bench.ratchet import CLOSING, Figures, excesses
from ratcheted import figures, row

from smartserver.cli.servers import LinkCost

LINK = LinkCost(5, 0.1, 10, 20, handshakes=2)
OURS = figures(1, 0, 1, 100, 400)
STOCK = figures(12, 2, 12, 300, 200)


@pytest.mark.parametrize(
    ("said", "calls", "vfs"),
    [
        ("", 0, 0),
        ("HPSS calls: 1 (0 vfs) hpss://127.0.0.1:4155\n", 1, 0),
        ("HPSS calls: 9 (2 vfs) SmartTCPClientMedium(bzr://127.0.0.1:1/)\n", 9, 2),
        ("x\nHPSS calls: 38 (2 vfs) one medium\nHPSS calls: 3 (1 vfs) another", 41, 3),
        ("said: HPSS calls: 4 (4 vfs) by somebody else\n", 0, 0),
    ],
)
def test_the_closing_lines_are_added_up(said: str, calls: int, vfs: int) -> None:
    assert ratchet.figures(LINK, said) == Figures(calls, vfs, LINK)
    assert Figures(calls, vfs, LINK).rounds == 3


def test_a_closing_line_is_no_word_of_the_command() -> None:
    assert CLOSING.sub("", "Pushed.\nHPSS calls: 9 (2 vfs) x\nDone.\n") == "Pushed.\nDone.\n"


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        (OURS, []),
        (figures(1, 0, 2, 100, 400), ["2 round trips, budget 1"]),
        (figures(1, 0, 1, 100, 400, handshakes=2), ["2 handshakes"]),
        (figures(1, 1, 1, 100, 400), ["1 VFS call"]),
        (figures(1, 0, 1, 100, 401), ["501 B, stock 500 B"]),
    ],
)
def test_what_is_too_much(ours: Figures, said: list[str]) -> None:
    assert list(excesses(row("cat"), ours, STOCK)) == said


def test_bytes_have_a_bound_where_nothing_was_remembered_and_stock_is_known() -> None:
    much = figures(1, 0, 1, 100, 10_000)
    assert list(excesses(row("pull"), much, STOCK)) == []
    assert list(excesses(row("cat"), much, None)) == []
    history = row("branch, first contact")
    assert 1 < history.times < 2
    assert list(excesses(history, figures(1, 0, 1, 100, 600), STOCK)) == []
    assert list(excesses(history, figures(1, 0, 1, 100, 700), STOCK)) == ["800 B, stock 500 B"]


def test_a_budget_is_the_commands_own() -> None:
    twice = figures(1, 0, 2, 100, 400)
    assert list(excesses(row("commit, of a checkout"), twice, STOCK)) == []
