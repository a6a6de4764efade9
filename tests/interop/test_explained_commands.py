"""trace.explain: commands of real git, none of which makes a needless request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from git_rows import ROWS, Row
from git_sides import Side

from smartserver.trace.explain import needless
from smartserver.trace.wait import Trace, traces

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

SOME = ROWS[::9]
"""Clones, fetches, pushes, refusals and the rest: a ninth, since each takes a second."""


def recorded(side: Side, script: str, path: Path) -> list[Trace]:
    """The traces of the commands of a script."""
    side.run(script, SMARTSERVER_DEBUG=f"hpss-json={path}")
    return traces(path.read_bytes().splitlines())


@pytest.mark.parametrize("row", SOME, ids=lambda row: row.name)
def test_a_good_command_is_accused_of_nothing(row: Row, ours: Callable[[str], Side], tmp_path: Path) -> None:
    side = ours(row.start)
    if row.before:
        side.prepare(row.before)
    found = recorded(side, row.run, tmp_path / "trace")
    assert found
    assert [each.finding for trace in found for each in needless(trace)] == []
