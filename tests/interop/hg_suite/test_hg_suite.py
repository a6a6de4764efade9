"""What the hg suite reads: Mercurial's test files, what a run of one printed, and the list of reasons."""

from __future__ import annotations

from pathlib import Path

import pytest
from hg_bridge import folder_of, ids_here
from hg_cases import Cases, bridged, cases_in, compared, outcome
from hg_histories import commit, new_repository
from run_hg_suite import REASONS, Report
from suites import Reasons, read_reasons

from smartserver.vcs.hg.kinds import NULL

TEST = """\
Words, with no meaning

  $ hg init a
  $ for i in 1 2; do
  >   hg -R a id
  > done
  000000000000 tip
  000000000000 tip
#if windows
  $ hg push b
  pushing to b
  [1]
#endif
"""


def test_each_command_is_a_case() -> None:
    assert cases_in(TEST) == [
        (3, "hg init a", ()),
        (4, "for i in 1 2; do\n  hg -R a id\ndone", ("  000000000000 tip", "  000000000000 tip")),
        (10, "hg push b", ("  pushing to b", "  [1]")),
    ]


@pytest.mark.parametrize(
    ("change", "passed", "failed", "problem"),
    [
        (("", ""), {3, 4, 10}, {}, ""),
        (("  [1]\n", ""), {3, 4}, {10: "hg push b"}, ""),
        (("  000000000000 tip\n", "  \n  1\n"), {3, 10}, {4: "for i in 1 2; do"}, ""),
        (("#if windows\n  $ hg push b\n", ""), {3}, {4: "for i in 1 2; do"}, "ended at line 10"),
        (("  $ hg init a\n", "  $ hg init b\n"), set(), {}, "printed lines that look like commands"),
    ],
)
def test_a_case_that_prints_something_else_fails(
    change: tuple[str, str], passed: set[int], failed: dict[int, str], problem: str
) -> None:
    assert compared(TEST, TEST.replace(*change)) == Cases(passed, failed, problem)


def test_a_run_without_a_difference() -> None:
    assert compared(TEST, None) == Cases({3, 4, 10})


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("success", Cases({3, 4, 10})),
        ("failure", Cases({3, 4}, {10: "hg push b"})),
        ("skip", Cases(problem="skip")),
        ("timeout", Cases(problem="timeout")),
    ],
)
def test_the_outcome_of_a_test(tmp_path: Path, result: str, expected: Cases) -> None:
    (tmp_path / "test-x.t").write_text(TEST)
    (tmp_path / "test-x.t#a.err").write_text(TEST.replace("[1]", "[2]"))
    assert outcome(tmp_path, tmp_path, "test-x.t#a", result) == expected


def test_operations_over_hpss(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("test-x.t#a\ntest-x.t\ntest-x.t\n")
    assert bridged(tmp_path / "log") == {"test-x.t": 2, "test-x.t#a": 1}
    assert bridged(tmp_path / "none") == {}


KNOWN = Reasons("7.2.4", {"a": "A"}, ["test-x"], {("test-x#v", 3): "a", ("test-x", 4): "a"})


def test_a_report() -> None:
    report = Report(KNOWN)
    outcomes = {
        "test-x.t": Cases({4}, {10: "hg push", 12: "hg pull"}),
        "test-x.t#v": Cases(set(), {3: "hg id"}),
        "test-y.t": Cases(problem="skip"),
        "test-z.t": Cases(problem="timeout"),
    }
    assert report.doubtful(outcomes) == ["test-x.t", "test-z.t"]
    report.add(outcomes, {"test-x.t": Cases({10}, {12: "hg pull"})}, {"test-x.t": 5})
    assert list(report.lines()) == [
        "3 cases, 1 passed, 5 operations over hpss",
        "    1 without a reason",
        "    1 A",
        "1 more fail with Mercurial alone, too",
        "1 tests are skipped on this machine: test-y.t",
        "test-x.t:10 fails: hg push",
        "test-x.t:4 passes now; remove it from reasons.toml",
        "test-z.t: timeout",
    ]


def test_the_reasons_are_of_the_closed_list() -> None:
    reasons = read_reasons(REASONS.read_text(), "mercurial")
    assert set(reasons.cases.values()) <= reasons.words.keys()
    assert len(reasons.tests) > 50


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("{top}/a", ("{top}/a", False)),
        ("file://{top}/a", ("{top}/a", False)),
        ("ssh://user@dummy/a", ("{top}/a", True)),
        ("ssh://user@dummy/b", None),
        ("ssh://another@dummy/a", None),
        ("http://localhost/a", None),
        ("{top}/b", None),
    ],
)
def test_the_folder_of_a_repository(tmp_path: Path, url: str, expected: tuple[str, bool] | None) -> None:
    (tmp_path / "a/.hg").mkdir(parents=True)
    found = folder_of(url.format(top=tmp_path).encode(), bytes(tmp_path))
    assert found == (expected and (expected[0].format(top=tmp_path).encode(), expected[1]))


def test_numbers_and_local_tags_become_ids(tmp_path: Path) -> None:
    node = commit(new_repository(tmp_path / "a"), (NULL, NULL), {}, b"one", {}, 1).hex().encode()
    (tmp_path / "a/.hg/localtags").write_bytes(node + b" mine\n")
    assert ids_here(bytes(tmp_path / "a"), [b"0", b"mine", b"tip", b"7"]) == {b"0": node, b"mine": node}
