"""bench.brz on a tiny history, with the real brz on both sides: a table, bars missed, what came otherwise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bench import brz, histories
from benches import bench

pytestmark = [pytest.mark.sockets, pytest.mark.interop]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A history of 7 revisions where none is given."""
    monkeypatch.setattr(histories, "BRZ_REVISIONS", 7)
    monkeypatch.setattr(histories, "BRZ_FILES", 5)


def test_both_sides_are_measured_and_the_branch_equals_the_source(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brz, "RATIO", 1e6)  # What 7 revisions take is the time Python takes to start.
    result = bench(temporary, "brz", "--repeat", "1")
    assert result.stdout.startswith("7 revisions (made here)"), result.stdout
    lines = result.stdout.splitlines()
    assert sum(line.endswith("ok") for line in lines) == 6
    for what in ("push: bytes up", "branch: bytes down", "on the server"):
        assert any(line.startswith(what) for line in lines)
    assert "wrong" not in result.stderr
    assert result.exit_code == 0


def test_what_costs_too_much_and_comes_back_otherwise(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    differences = brz.BrzHistory.differences

    def tampered(self: brz.BrzHistory) -> list[str]:
        words = ["uncommit", "--quiet", "--force", str(self.copied(self.ours))]
        subprocess.run([sys.executable, "-m", "breezy", *words], check=True)
        return differences(self)

    monkeypatch.setattr(brz.BrzHistory, "differences", tampered)
    monkeypatch.setattr(brz, "RATIO", -1)
    monkeypatch.setattr("bench.copies.MEMORY", -1)
    result = bench(temporary, "brz", "--repeat", "1")
    assert sum(line.endswith("MISSED") for line in result.stdout.splitlines()) == 6
    assert "wrong: brz revno of the source and of the branch differ: 1 and 1 lines" in result.stderr
    assert "wrong: brz testament --strict --long of the source and of the branch differ" in result.stderr
    assert result.exit_code == 1
