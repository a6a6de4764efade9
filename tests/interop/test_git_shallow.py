"""Every command of shallow and partial clones over hpss, beside the same command over file://."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from git_rows import Row
from git_shallow_rows import SHALLOW_ROWS
from git_sides import Pair, check_rounds
from test_git_commands import check_left, check_said

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


@pytest.mark.parametrize("row", SHALLOW_ROWS, ids=lambda row: row.name)
def test_a_command_of_a_part_does_what_git_does(row: Row, pair: Callable[[str], Pair]) -> None:
    both = pair(row.start)
    if row.before:
        both.prepare(row.before)
    ours, gits = both.run(row.run)
    check_said(row, ours, gits)
    check_rounds(ours.counts, row.rounds)
    if row.after:
        after, expected = both.run(row.after)
        assert (after.status, after.said) == (0, expected.said)
    check_left(both)
