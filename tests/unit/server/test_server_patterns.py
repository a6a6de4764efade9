"""server.patterns: what a pattern matches, in both spellings, and which are refused."""

from __future__ import annotations

import pytest

from smartserver.server.patterns import NamePattern, check_pattern, folded
from smartserver.server.watched import UnusableFile


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("project", "project", True),
        ("project", "projects", False),
        ("project/**", "project", True),
        ("project/**", "project/www/inner", True),
        ("project/**", "projects", False),
        ("*/www", "project/www", True),
        ("*/www", "project/a/www", False),
        ("**/www", "project/a/www", True),
        ("a.b+(c)", "a.b+(c)", True),
        ("a.b+(c)", "axbb(c)", False),
        ("", "", True),
        ("", "a", False),
        ("**", "a\nb", True),
    ],
)
def test_what_a_pattern_matches(pattern: str, name: str, fits: bool) -> None:
    assert NamePattern(pattern).matches(name, folds=False) is fits


@pytest.mark.parametrize(("first", "second"), [("SECRET", "secret"), ("\u017fecret", "secret"), ("e\u0301", "\u00c9")])
def test_spellings_of_one_name(first: str, second: str) -> None:
    assert folded(first) == folded(second)
    assert NamePattern(first).matches(folded(second), folds=True)
    assert not NamePattern(first).matches(second, folds=False)


@pytest.mark.parametrize(
    ("patterns", "why"),
    [
        (["/a", "a/", "a//b"], "a slash at its start or end, or two together"),
        (["a/../b", "."], "'.' and '..' are in no path or ref"),
        (["a/x**"], "`**` must stand alone between slashes"),
        (["e\u0301"], "it is not in Unicode form NFC"),
    ],
)
def test_patterns_that_are_refused(patterns: list[str], why: str) -> None:
    for pattern in patterns:
        with pytest.raises(UnusableFile) as wrong:
            check_pattern("path", pattern)
        assert str(wrong.value).startswith(f"path = {pattern!r}: {why}")


def test_patterns_that_are_not_refused() -> None:
    for key, pattern in (("path", ""), ("path", "a/*/b"), ("refs", ".")):
        check_pattern(key, pattern)
