"""bench.ratchet_rows, and the judgement of bench.ratchet on how a command ended."""

from __future__ import annotations

import string
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from bench.links import Done
from bench.ratchet import NAMES, difference, wrongs
from bench.ratchet_rows import ROWS, Ran, Row
from bench.ratchet_sides import Side
from ratcheted import row

BUDGETS: dict[str, int] = tomllib.loads(Path("tests/budgets.toml").read_text(encoding="utf-8"))["brz"]
AS = {
    "branch, first contact": "branch",
    "branch -r, from the server to the server, first contact": "branch, beside, not remembered",
    "checkout, first contact": "checkout",
    "diff --old": "diff, two branches",
    "log --forward -l": "log",
    "log -n0 -l": "log",
    "log -r TAG": "log",
    "log -r TAG, not there": "log",
    "push, first contact": "push, first contact, large",
    "push, new branch, first contact": "push, first contact, large",
    "push, new repository, first contact": "push, new repository",
    "revision-info -r": "revision-info",
    "revno --tree": "revno",
    "revno -r TAG": "revno",
    "revno, first contact": "revno",
    "tags, first contact": "tags",
    "branch, from the server to the server": "branch, beside",
    "commit, of a lightweight checkout": "commit, lightweight",
    "log -l": "log",
    "log -v": "log",
    "log, of one file": "log -v, one file",
    "pull": "pull -v",
}
"""Rows whose budget has another name there."""
DONE = Done(0, 0.1, "", "", 0.0)


def test_names_are_told_apart_and_the_missing_are_rows() -> None:
    named = [row.name for row in ROWS]
    assert len(set(named)) == len(named)
    assert {"push", "push, diverged", "annotate"} <= set(NAMES)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_is_what_the_tests_of_the_plugin_allow(row: Row) -> None:
    words = [row.command, *row.before]
    assert {field for each in words for _, field, _, _ in string.Formatter().parse(each) if field} <= {
        "project", "made", "file",
    }  # fmt: skip
    assert row.right or row.says or row.same, "its outcome is not looked at"
    assert row.budget == BUDGETS[AS.get(row.name, row.name)]


@pytest.fixture
def outcome() -> Callable[[Row, Done], list[str]]:
    def judge(row: Row, done: Done) -> list[str]:
        return list(wrongs(row, done, Ran(cast("Side", None), done, "", "")))

    return judge


def test_an_end_that_is_wrong(outcome: Callable[[Row, Done], list[str]]) -> None:
    closing = "HPSS calls: 1 (0 vfs) hpss://x\n"
    revno = row("revno")
    assert outcome(revno, replace(DONE, stdout="3\n", stderr=closing)) == []
    assert outcome(revno, DONE) == ["it printed nothing"]
    failed = replace(DONE, status=3, stderr=f"brz: ERROR: no\nmore\n{closing}")
    assert outcome(revno, failed) == ["status 3, expected 0: brz: ERROR: no"]
    assert outcome(row("missing"), replace(DONE, status=1)) == ["expected 'You have 1 extra revision:', it said: "]


def test_an_effect_that_is_wrong(outcome: Callable[[Row, Done], list[str]]) -> None:
    def gone(_: Ran) -> bool:
        raise FileNotFoundError(2, "gone")

    assert outcome(replace(row("tag"), right=lambda _: True), DONE) == []
    assert outcome(replace(row("tag"), right=lambda _: False), DONE) == ["its effect is wrong; it said: "]
    assert outcome(replace(row("tag"), right=gone), DONE) == ["its effect is wrong: [Errno 2] gone"]


def test_the_first_line_that_differs_is_told() -> None:
    assert difference("a\nb\n", "a\nc\n") == "'c' instead of 'b'"
    assert difference("a\n", "a\nb\n") == "2 lines instead of 1"
