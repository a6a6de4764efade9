"""The suites of a run, and the reasons for which a case may fail over hpss:// alone: a closed list, of
doc/howto/use_breezy.md or of tests."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parent / "reasons.toml"
PAGE = Path(__file__).parents[3] / "doc" / "howto" / "use_breezy.md"

PREFIX = "breezy.tests."
"""The beginning of each case's name; the file leaves it out."""

ARRANGEMENTS = {
    "named": "the locations that a command names are remote",
    "defaults": "so are those that a branch remembers",
    "light": "the tree that a command works in is a lightweight checkout",
    "bound": "the branch that a command works in is bound",
}
"""The part of a command that is remote in the blackbox suite, by arrangement."""

SUITES = {
    "per_branch": "(RemoteBranchFormat-default)",
    "per_controldir": "(RemoteBzrDirFormat-default)",
    "per_controldir_colo": "(RemoteBzrDirFormat-default)",
    "per_interbranch": "(GenericInterBranch,BzrBranchFormat7,BzrBranchFormat7)",
    "per_interrepository": "(InterDifferingSerializer,RepositoryFormat2a,RepositoryFormatKnitPack6RichRoot)",
    "per_repository": "(RemoteRepositoryFormat-default)",
    "per_transport": "(RemoteTCPTransport,SmartTCPServer_for_testing)",
}
"""By interface suite: the end of the names of the cases to run."""


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
