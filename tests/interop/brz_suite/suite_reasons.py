"""Why a case may fail over hpss:// alone: a closed list of reasons, of doc/howto/use_breezy.md or of tests alone."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parent / "reasons.toml"
PAGE = Path(__file__).parents[3] / "doc" / "howto" / "use_breezy.md"

PREFIX = "breezy.tests."
"""What the name of each case begins with; left out in the file."""


class Reasons(NamedTuple):
    """The reasons, and the cases that have one."""

    texts: dict[str, str]
    """Reason -> words of the line of doc/howto/use_breezy.md that says so."""
    of_tests: dict[str, str]
    """Reason -> what is true of the tests alone."""
    cases: dict[str, dict[str, list[str]]]
    """Suite -> reason -> names of cases."""

    def of(self, suite: str) -> dict[str, str]:
        """The reason of each case of a suite that has one."""
        grouped = self.cases.get(suite, {})
        return {PREFIX + name: reason for reason, names in grouped.items() for name in names}


def read() -> Reasons:
    """The reasons as they are written down."""
    whole = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return Reasons(whole.pop("reasons"), whole.pop("tests"), whole)
