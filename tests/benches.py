"""`make bench` in this process: what it says, and that it leaves nothing behind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.command import command
from click.testing import CliRunner, Result


def bench(temporary: Path, *arguments: object) -> Result:
    """Run a measurement; `temporary` is the fixture."""
    result = CliRunner().invoke(command, [*map(str, arguments)], catch_exceptions=False)
    assert list(temporary.iterdir()) == [], "something was left behind"
    return result


def check_met(result: Result, begin: str, bars: int, rows: Sequence[str]) -> None:
    """Check that a measurement says so first, has these rows, and missed none of its bars."""
    assert result.stdout.startswith(begin), result.stdout + result.stderr
    lines = result.stdout.splitlines()
    assert sum(line.endswith("ok") for line in lines) == bars
    for row in rows:
        assert any(line.startswith(row) for line in lines)
    assert "wrong" not in result.stderr
    assert result.exit_code == 0


def check_missed(result: Result, bars: int, wrong: Sequence[str]) -> None:
    """Check that a measurement missed so many bars, and says what came otherwise."""
    assert sum(line.endswith("MISSED") for line in result.stdout.splitlines()) == bars
    for each in wrong:
        assert f"wrong: {each}" in result.stderr
    assert result.exit_code == 1
