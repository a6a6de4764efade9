from __future__ import annotations

import pytest

from smartserver.vcs.patterns import atomic, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "same"),
    [
        (rb"[^\0]++\0.*+", rb"[^\0]++\0.*+"),
        (rb"(?:ab)*+c", rb"(?>(?:ab)*)c"),
        (rb"(a)++", rb"(?>(a)+)"),
        (rb"(?:a|(?:b)?+){2,}+", rb"(?>(?:a|(?>(?:b)?)){2,})"),
        (rb"\)*+[)(]++(?:[\])]\(a)*+", rb"\)*+[)(]++(?>(?:[\])]\(a)*)"),
        (rb"[]()]*+(?:x)?", rb"[]()]*+(?:x)?"),
    ],
)
def test_groups_become_atomic(pattern: bytes, same: bytes) -> None:
    assert atomic(pattern) == same


def test_what_old_releases_missed() -> None:
    """Each of them with something in the group that can go back."""
    assert compile_pattern(rb"(?:(?=[0-7])0*+[0-7]{0,6} [^\0]++\0)*+").fullmatch(b"100644 a\x0040000 b\x00")
    assert compile_pattern(rb"(?:ab?c)++c").fullmatch(b"acabcc")
    assert not compile_pattern(rb"(?:a|ab)++c").fullmatch(b"abc")
