"""`make bench` in this process: what it says, and that it leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

from bench.command import command
from click.testing import CliRunner, Result


def bench(temporary: Path, *arguments: object) -> Result:
    """Run a measurement; `temporary` is the fixture."""
    result = CliRunner().invoke(command, [*map(str, arguments)], catch_exceptions=False)
    assert list(temporary.iterdir()) == [], "something was left behind"
    return result
