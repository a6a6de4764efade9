"""The reasons for which a case may fail over hpss:// alone: a closed list, of doc/howto/use_breezy.md or of tests."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parent / "reasons.toml"
PAGE = Path(__file__).parents[3] / "doc" / "howto" / "use_breezy.md"

PREFIX = "breezy.tests."
"""The beginning of each case's name; the file leaves it out."""


class Reasons(NamedTuple):
    """The reasons, and the cases that have one."""

    texts: dict[str, str]
    """By reason: words of its line in doc/howto/use_breezy.md."""
    of_tests: dict[str, str]
    """By reason: the property of the tests alone that makes them fail."""
    cases: dict[str, dict[str, list[str]]]
    """By suite and reason: the names of cases."""

    def of(self, suite: str) -> dict[str, str]:
        """Return, for a suite, the reason of each case that has one."""
        grouped = self.cases.get(suite, {})
        return {PREFIX + name: reason for reason, names in grouped.items() for name in names}


def read() -> Reasons:
    """Read the file of reasons."""
    whole = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return Reasons(whole.pop("reasons"), whole.pop("tests"), whole)
