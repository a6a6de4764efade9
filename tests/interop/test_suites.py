"""What runs the suites of others: the list of reasons, and what is counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from suites import CannotRun, Reasons, read_reasons, suite_server, summary

FILE = "hg = '7.2.4'\n[reasons]\na = 'A'\nc = 'C'\n[tests]\ntest-x = {cases}\n"


def test_reasons() -> None:
    found = read_reasons(FILE.format(cases="{ a = [1, 2] }"), "hg")
    assert found == Reasons("7.2.4", {"a": "A", "c": "C"}, ["test-x"], {("test-x", 1): "a", ("test-x", 2): "a"})


@pytest.mark.parametrize(
    ("cases", "why"),
    [
        ("{ b = [1] }", "test-x: b is not in the list of reasons"),
        ("{ a = [1, 2], c = [2] }", "test-x: 2 has two reasons"),
    ],
)
def test_reasons_that_are_wrong(cases: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_reasons(FILE.format(cases=cases), "hg")


def test_a_summary() -> None:
    counts = Counter({"passed": 5, "a": 2, "without a reason": 1})
    said = list(summary(Reasons("", {"a": "A"}, [], {}), counts, "hg", 3))
    assert said == ["8 cases, 5 passed", "    2 A", "    1 without a reason", "3 more fail with hg alone, too"]


@pytest.mark.sockets
def test_a_server(tmp_path: Path) -> None:
    with suite_server(tmp_path) as url:
        assert url.startswith("hpss://127.0.0.1:")
    with pytest.raises(CannotRun, match="No such option"), suite_server(tmp_path, "--nonsense"):
        pass
