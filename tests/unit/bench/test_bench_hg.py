"""bench.hg on a tiny history, with the real hg on both sides: a table, bars missed, what came otherwise."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from bench import hg, histories
from benches import bench, check_met, check_missed

pytestmark = [pytest.mark.sockets, pytest.mark.interop]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A history of 7 changesets where none is given."""
    monkeypatch.setattr(histories.git_stream, "__defaults__", (7, 5))


def test_both_sides_are_measured_and_the_clone_equals_the_source(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hg, "RATIO", 1e6)  # What 7 changesets take is the time Python takes to start.
    result = bench(temporary, "hg", "--repeat", "1")
    check_met(result, "7 changesets, ", 8, ["push: bytes up", "clone: bytes down", "on the server"])


def test_what_costs_too_much_and_comes_back_otherwise(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    differences = hg.HgHistory.differences

    def tampered(self: hg.HgHistory) -> list[str]:
        copy = self.copied(self.ours)
        shutil.rmtree(copy)
        subprocess.run(["hg", "init", str(copy)], check=True)
        return differences(self)

    monkeypatch.setattr(hg.HgHistory, "differences", tampered)
    monkeypatch.setattr(hg, "RATIO", -1)
    monkeypatch.setattr("bench.copies.MEMORY", -1)
    result = bench(temporary, "hg", "--repeat", "1")
    check_missed(result, 6, ["hg log of the source and of the clone differ: 7 and 0 lines"])
