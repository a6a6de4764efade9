"""Run Mercurial's own tests over hpss: `make hg-suite`.

Its test files about exchange run with an hg whose remote repositories on this machine are served over hpss
(hg_bridge.py). Each case that fails has its reason in reasons.toml. The exit status is 1 if a case without a reason
fails, or if one with a reason passes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree

from hg_cases import bridged, outcome
from hg_source import installed, tests_of
from suites import CannotRun, Cases, Report, end, read_reasons, run_main, suite_server

HERE = Path(__file__).resolve().parent
REASONS = HERE / "reasons.toml"
LOADER = HERE.parents[2] / "hgext3rd" / "hpss.py"
HG = Path(sys.executable).with_name("hg")


@dataclass
class Suite:
    """The tests of one release of Mercurial, and a server for them."""

    tests: Path
    work: Path
    jobs: int
    timeout: int
    _url: str = ""

    @contextmanager
    def served(self) -> Iterator[None]:
        """Run a server for the repositories of the tests."""
        with suite_server(self.work) as self._url:
            yield

    def run(self, files: Sequence[str], *, over_hpss: bool) -> dict[str, Cases]:
        """Run test files, over hpss or with Mercurial alone, and return the outcomes of each test."""
        results = self.work / ("hpss" if over_hpss else "plain")
        rmtree(results, ignore_errors=True)
        (results / "tmp").mkdir(parents=True)
        environment = {name: os.environ[name] for name in ("HOME", "PATH")} | {"TMPDIR": str(results / "tmp")}
        command = [sys.executable, "run-tests.py", f"--with-hg={HG}", f"--outputdir={results}", "--json", "--nodiff"]
        command += [f"--jobs={self.jobs}", f"--timeout={self.timeout}"]
        if over_hpss:
            environment |= {
                "HPSS_BRIDGE": self._url,
                "HPSS_BRIDGE_LOG": str(results / "bridged"),
                "SMARTSERVER_AGENT": "0",
            }
            for option in (f"extensions.hpss={LOADER}", f"extensions.hpss_bridge={HERE / 'hg_bridge.py'}"):
                command += ["--extra-config-opt", option]
        process = subprocess.Popen(
            [*command, *files], cwd=self.tests, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            process.wait()
        finally:
            end(process)
        report = results / "report.json"
        if not report.exists():
            raise CannotRun(f"run-tests.py ended with status {process.returncode} and no report")
        # The file assigns its JSON to a variable.
        said = json.loads(report.read_text().partition("=")[2])
        rmtree(results / "tmp", ignore_errors=True)
        return {name: outcome(self.tests, results, name, each["result"]) for name, each in sorted(said.items())}

    def operations(self) -> dict[str, int]:
        """Return the number of operations over hpss of each test."""
        return bridged(self.work / "hpss" / "bridged")


@dataclass
class HgReport(Report):
    """The outcomes of the tests, and those that were skipped."""

    skipped: list[str] = field(default_factory=list)
    """The tests that need something this machine lacks."""
    remote: int = 0
    """The number of operations over hpss."""

    def doubtful(self, outcomes: Mapping[str, Cases]) -> list[str]:
        """Return the files with a failure that has no reason, or without an end."""
        return sorted(
            {
                name.partition("#")[0]
                for name, cases in outcomes.items()
                if (cases.problem and cases.problem != "skip") or cases.failed.keys() - self.known(_key(name)).keys()
            }
        )

    def add(self, outcomes: Mapping[str, Cases], plain: Mapping[str, Cases], operations: Mapping[str, int]) -> None:
        """Count the cases of a run; `plain` has the outcomes of the doubtful files with Mercurial alone."""
        for name, cases in outcomes.items():
            if cases.problem == "skip":
                self.skipped.append(name)
                continue
            self.remote += operations.get(name, 0)
            self.counts["passed"] += len(cases.passed)
            self.judge(_key(name), name, cases, plain.get(name, Cases()))

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report."""
        more = f", {self.remote} operations over hpss"
        yield from self.summary("Mercurial", more)
        if self.skipped:
            yield f"{len(self.skipped)} tests are skipped on this machine: {' '.join(self.skipped)}"
        yield from self.wrong


def _key(name: str) -> str:
    """Return the name that reasons.toml has for a test."""
    return name.replace(".t", "", 1)


def main() -> int:
    """Run the tests that the command line names, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make hg-suite ARGS=...", description=__doc__.split("\n\n")[0])
    parser.add_argument("files", nargs="*", help="test files, as test-push (default: all of reasons.toml)")
    parser.add_argument("--plain", action="store_true", help="with Mercurial alone: what fails on this machine anyway")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "smartserver" / "hg-suite"
    parser.add_argument("--work", type=Path, default=cache, help="folder for the source and the results (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="files at a time (%(default)s)")
    parser.add_argument("--timeout", type=int, default=600, help="seconds for one file (%(default)s)")
    options = parser.parse_args()
    reasons = read_reasons(REASONS.read_text(), "mercurial")
    work = options.work.resolve()
    report = HgReport(reasons)
    try:
        release = installed(HG)
        if release != reasons.release:
            print(
                f"this is Mercurial {release}: the lines in {REASONS.name} are those of {reasons.release}",
                file=sys.stderr,
            )
        suite = Suite(tests_of(release, work), work, options.jobs, options.timeout)
        files = [
            f"{name.removesuffix('.t')}.t"
            for name in options.files or dict.fromkeys(test.partition("#")[0] for test in reasons.tests)
        ]
        if options.plain:
            outcomes = suite.run(files, over_hpss=False)
            report.reasons = reasons._replace(cases={})
            report.add(outcomes, {name: Cases(passed=set(cases.failed)) for name, cases in outcomes.items()}, {})
        else:
            with suite.served():
                outcomes = suite.run(files, over_hpss=True)
            doubtful = report.doubtful(outcomes)
            plain = suite.run(doubtful, over_hpss=False) if doubtful else {}
            report.add(outcomes, plain, suite.operations())
    except CannotRun as wrong:
        print(wrong, file=sys.stderr)
        return 2
    print("\n".join(["", *report.lines()]))
    return 1 if report.wrong else 0


if __name__ == "__main__":
    run_main(main)
