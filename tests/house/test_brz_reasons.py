"""Cases of Breezy's own tests that fail over hpss:// alone have one reason each, which the documentation says."""

from __future__ import annotations

from suite_reasons import ARRANGEMENTS, PAGE, SUITES, read


def _lines() -> list[str]:
    """The lines of a list in doc/howto/use_breezy.md, each in one."""
    text = PAGE.read_text(encoding="utf-8")
    return [" ".join(line.split()) for line in text.split("\n* ")]


def test_each_reason_is_a_line_of_the_documentation() -> None:
    lines = _lines()
    assert not [name for name, words in read().texts.items() if sum(words in line for line in lines) != 1]


def test_each_reason_is_used_and_each_used_one_is_there() -> None:
    reasons = read()
    used = {reason for grouped in reasons.cases.values() for reason in grouped}
    assert used == reasons.texts.keys() | reasons.of_tests.keys()
    assert not reasons.texts.keys() & reasons.of_tests.keys()


def test_suites_are_those_of_the_run() -> None:
    assert read().cases.keys() <= {*ARRANGEMENTS, *SUITES}


def test_a_case_has_one_reason() -> None:
    for suite, grouped in read().cases.items():
        names = [name for cases in grouped.values() for name in cases]
        assert sorted(set(names)) == sorted(names), suite
