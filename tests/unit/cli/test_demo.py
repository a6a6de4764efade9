"""cli.demo and cli.demo_run: the demo on a tiny history."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from smartserver.cli import demo_run
from smartserver.cli.histories import generate
from smartserver.cli.main import group

pytestmark = [pytest.mark.sockets, pytest.mark.interop]

OPERATIONS = (
    "first push of all history", "clone", "push one commit", "fetch one commit", "push a new branch", "push nothing",
    "fetch nothing", "diverged push, refused",
)  # fmt: skip


def test_every_operation_is_shown_beside_gits(tmp_path: Path, temporary: Path) -> None:
    source = tmp_path / "source.git"
    generate(source, os.environ, ("main", "other"), 5)
    result = CliRunner().invoke(group, ["demo", str(source), "--rtt", "5ms"], catch_exceptions=False)
    assert (result.exit_code, list(temporary.iterdir())) == (0, []), result.output
    lines = result.stdout.splitlines()
    assert "(10 commits)" in lines[0]
    for operation in OPERATIONS:
        (line,) = [line for line in lines if line.startswith(operation + "  ")]
        assert line.removeprefix(operation).split()[0] == "2", line
        assert len(line.removeprefix(operation).split()) == 12, line  # A size is two words.


def test_too_many_trips_and_wrong_results_are_told(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source.git"
    generate(source, os.environ, ("main",), 5)

    class Wrong(demo_run.Comparison):
        def operations(self) -> list[demo_run.Operation]:
            found = [demo_run.Operation(o.name, o.run, o.before, 1) for o in super().operations()[:2]]
            return [*found, demo_run.Operation("push of a branch that is lost", self.lose)]

        def lose(self, side: demo_run.Side) -> None:
            self.git(side, 0, "branch", "lost")

    monkeypatch.setattr(demo_run, "Comparison", Wrong)
    result = CliRunner().invoke(group, ["demo", str(source), "--rtt", "1ms"], catch_exceptions=False)
    assert (result.exit_code, list(temporary.iterdir())) == (1, [])
    assert "wrong: clone: 2 round trips, expected 1 at most" in result.stderr
    assert "wrong: hpss: refs/heads/lost is None" in result.stderr


def test_what_is_no_repository_is_one_line(tmp_path: Path, temporary: Path) -> None:
    result = CliRunner().invoke(group, ["demo", str(tmp_path)])
    assert "is not a git repository" in str(result.exception)
    assert list(temporary.iterdir()) == []
