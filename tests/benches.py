"""`smartserver bench` in this process: what it says, and that it leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from smartserver.cli.main import group


def bench(temporary: Path, *arguments: object) -> Result:
    """Run a measurement; `temporary` is the fixture."""
    result = CliRunner().invoke(group, ["bench", *map(str, arguments)], catch_exceptions=False)
    assert list(temporary.iterdir()) == [], "something was left behind"
    return result
