"""Every command of shallow and partial clones over hpss, beside the same command over file://."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from git_rows import Row
from git_shallow_rows import SHALLOW_ROWS
from git_sides import Pair
from test_git_commands import compared

BUDGETS: dict[str, int] = tomllib.loads((Path(__file__).parents[1] / "budgets.toml").read_text(encoding="utf-8"))["git"]

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


@pytest.mark.parametrize("row", SHALLOW_ROWS, ids=lambda row: row.name)
def test_a_command_of_a_part_does_what_git_does(row: Row, pair: Callable[[str], Pair]) -> None:
    counts = compared(row, pair(row.start))
    assert counts.rounds - counts.connections == BUDGETS[f"git {row.name}"], counts


def test_every_budget_is_used() -> None:
    assert BUDGETS.keys() == {f"git {row.name}" for row in SHALLOW_ROWS}
