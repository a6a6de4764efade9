"""What the git suite reads: the output of git's scripts, and the list of reasons."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_bridge import name_of, repository_of
from run_git_suite import REASONS, cases_of
from suites import read_reasons

OUTPUT = """\
ok 1 - setup
# bridged
# bridged
ok 2 - fetch
# bridged
not ok 3 - push
#	git push
not ok 4 - that git cannot yet # TODO known breakage
ok 5 # skip it (missing SANITY)
# bridged
ok 6 - clone # of all
"""


def test_cases() -> None:
    cases = cases_of((OUTPUT + "1..6\n").splitlines())
    assert cases.passed == {1, 2, 6}
    assert cases.failed == {3: "push"}
    assert cases.bridged == {2, 3, 6}
    assert cases.problem == ""


def test_a_script_that_ended_early() -> None:
    assert cases_of(OUTPUT.splitlines()).problem == "ended early"


def test_a_script_that_skipped_all() -> None:
    assert cases_of(["1..0 # SKIP no web server"]).problem == ""


def test_the_reasons_are_of_the_closed_list() -> None:
    reasons = read_reasons(REASONS.read_text(), "git")
    assert set(reasons.cases.values()) <= reasons.words.keys()
    assert {script for script, _ in reasons.cases} <= set(reasons.tests)


@pytest.mark.parametrize("name", ["x", "x/.git", "y", "file"])
def test_where_a_repository_is(name: str, tmp_path: Path) -> None:
    for folder in ("x/.git", "y.git"):
        (tmp_path / folder / "objects").mkdir(parents=True)
        (tmp_path / folder / "HEAD").touch()
    (tmp_path / "file").write_text("gitdir: y.git\n")
    expected = tmp_path / ("x/.git" if name.startswith("x") else "y.git")
    assert repository_of(str(tmp_path / name), "") == expected
    assert repository_of(f"file://{tmp_path / name}", "") == expected
    assert repository_of(str(tmp_path / "none"), "") is None


def test_the_name_of_a_repository(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    name = name_of(tmp_path / "a")
    assert name_of(tmp_path / "a") == name
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "a").mkdir()
    assert len({name, name_of(tmp_path / "a"), name_of(tmp_path / "b")}) == 3
