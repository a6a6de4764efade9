"""Breezy's own tests over hpss://, and the failed ones again over bzr:// (`make brz-suite`).

A case that passes over bzr:// and fails over hpss:// needs a reason in `reasons.toml`. The exit status is 1 if such a
case has none, or if a case with a reason passes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from suite_reasons import ARRANGEMENTS, SUITES, Reasons, read

HERE = Path(__file__).parent
MEMORY = Path("/dev/shm")
"""A file system in memory, if there is one: Breezy syncs each file."""


class Outcome(NamedTuple):
    """The outcome of a case."""

    what: str
    is_remote: bool
    said: str


class Compared(NamedTuple):
    """The outcomes of a suite over both protocols, by the names of its cases."""

    hpss: Mapping[str, Outcome]
    bzr: Mapping[str, Outcome]
    """The outcomes over bzr:// of the cases that fail over hpss://."""

    def only_hpss(self) -> list[str]:
        """The cases that fail over hpss:// alone."""
        return sorted(name for name, control in self.bzr.items() if control.what != "fail")

    def line(self, suite: str) -> str:
        """Return the line with the counts of a suite."""
        remote = [outcome.what for outcome in self.hpss.values() if outcome.is_remote]
        only = len(self.only_hpss())
        counts = (
            f"{len(self.hpss)} cases, {len(remote)} with anything remote: {remote.count('pass')} pass, "
            f"{remote.count('skip')} do not apply, {len(self.bzr) - only} fail over both, {only} over hpss:// alone"
        )
        return f"{suite}: {counts}"


def _run(suite: str, side: str, words: str, folder: Path, only: list[str] | None = None) -> dict[str, Outcome]:
    """Run a suite, or some of its cases, over one protocol in a process of its own."""
    out, names = folder / f"{suite}-{side}.jsonl", folder / f"{suite}-{side}.json"
    command = [sys.executable, str(HERE / "suite_cases.py"), f"--suite={suite}", f"--side={side}", f"--out={out}"]
    if only is not None:
        names.write_text(json.dumps(only))
        command.append(f"--only={names}")
    done = subprocess.run([*command, f"--filter={words}"], stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise SystemExit(f"{suite} over {side}:// ended with status {done.returncode}")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return {name: Outcome(*rest) for name, *rest in rows}


def compare(suite: str, words: str, folder: Path) -> Compared:
    """Run a suite over hpss://, then the failed cases over bzr://."""
    ours = _run(suite, "hpss", words, folder)
    failed = [name for name, outcome in ours.items() if outcome.what == "fail" and outcome.is_remote]
    return Compared(ours, _run(suite, "bzr", "", folder, failed) if failed else {})


def objections(suite: str, compared: Compared, reasons: Reasons) -> list[str]:
    """Return the cases that fail without a reason, and those that have a reason and do not fail."""
    only, known = compared.only_hpss(), reasons.of(suite)
    failed = [f"{suite}: {name} fails over hpss:// alone" for name in only if name not in known]
    passed = [
        f"{suite}: {name} has a reason ({known[name]}) and does not fail"
        for name in compared.hpss
        if name in known and name not in only
    ]
    return failed + passed


def main() -> int:
    """Run the suites that the command line names, or all."""
    parser = argparse.ArgumentParser(prog="brz-suite", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join([*ARRANGEMENTS, *SUITES]))
    parser.add_argument("--filter", default="", help="only cases with this in their name")
    parser.add_argument("--show", action="store_true", help="say what failed cases said")
    asked = parser.parse_args()
    unknown = set(asked.suites) - {*ARRANGEMENTS, *SUITES}
    if unknown:
        parser.error(f"no such suite: {', '.join(sorted(unknown))}")
    reasons = read()
    found: list[str] = []
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="brz-suite-", dir=where) as folder:
        os.environ["TMPDIR"] = folder
        for suite in asked.suites or [*ARRANGEMENTS, *SUITES]:
            compared = compare(suite, asked.filter, Path(folder))
            print(compared.line(suite), flush=True)
            found += objections(suite, compared, reasons)
            if asked.show:
                for name in compared.only_hpss():
                    print(f"\n== {name}\n{compared.hpss[name].said}")
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
