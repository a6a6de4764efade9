"""Run Mercurial's own tests over hpss: `make hg-suite`.

Its test files about exchange run with an hg whose remote repositories on this machine are served over hpss
(hg_bridge.py). Each case that fails has its reason in reasons.toml. The exit status is 1 if a case without a reason
fails, or if one with a reason passes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple

from suites import CannotRun, Cases, Report, end, read_reasons, run_main, suite_server

HERE = Path(__file__).resolve().parent
REASONS = HERE / "reasons.toml"
LOADER = HERE.parents[2] / "hgext3rd" / "hpss.py"
HG = Path(sys.executable).with_name("hg")


# -- the tests of a release


def installed(hg: Path) -> str:
    """The release of an hg.

    Raises:
        CannotRun: there is none.
    """
    try:
        done = subprocess.run([hg, "version", "-T", "{ver}"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise CannotRun(f"{hg} is not installed: make .venv/tools") from None
    return done.stdout.strip()


def tests_of(release: str, work: Path) -> Path:
    """The folder of the tests of a release.

    Raises:
        CannotRun: it cannot be downloaded.
    """
    source = work / f"mercurial-{release}"
    if not (source / "tests" / "run-tests.py").exists():
        work.mkdir(parents=True, exist_ok=True)
        words = ["--no-deps", "--no-binary", ":all:", "--disable-pip-version-check", "--quiet", f"mercurial=={release}"]
        command = [sys.executable, "-m", "pip", "download", "--dest", str(work), *words]
        print(f"downloading the source of Mercurial {release}", file=sys.stderr)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        archive = work / f"mercurial-{release}.tar.gz"
        if done.returncode or not archive.exists():
            lines = done.stderr.strip().splitlines() or ["nothing was downloaded"]
            raise CannotRun(f"the source of Mercurial {release} cannot be had: {lines[-1]}")
        shutil.rmtree(source, ignore_errors=True)
        subprocess.run(["tar", "-xf", archive, "-C", work], check=True)
    return source / "tests"


# -- the cases of a test file: each command, with what it prints, is one


START = "  $ "
FURTHER = "  > "


class Case(NamedTuple):
    """One command, and the output that follows it."""

    line: int
    command: str
    printed: tuple[str, ...]


def cases_in(text: str) -> list[Case]:
    """Read the cases of a test file, or of a run's output."""
    found: list[Case] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(START):
            found.append(Case(number, line[len(START) :], ()))
        elif line.startswith(FURTHER) and found and not found[-1].printed:
            case = found[-1]
            found[-1] = case._replace(command=f"{case.command}\n{line[len(FURTHER) :]}")
        elif found and line.startswith("  "):
            case = found[-1]
            found[-1] = case._replace(printed=(*case.printed, line))
    return found


def compared(expected: str, printed: str | None) -> Cases:
    """Return the cases of a file, with those that printed something else; None: the run printed the expected output."""
    cases = Cases()
    wanted = cases_in(expected)
    given = wanted if printed is None else cases_in(printed)
    if [case.command for case in given] != [case.command for case in wanted][: len(given)]:
        cases.problem = "printed lines that look like commands"
        return cases
    if len(given) < len(wanted):
        cases.problem = f"ended at line {wanted[len(given)].line}"
    for want, got in zip(wanted, given, strict=False):
        if want.printed == got.printed:
            cases.passed.add(want.line)
        else:
            cases.failed[want.line] = want.command.partition("\n")[0]
    return cases


def outcome(tests: Path, results: Path, name: str, result: str) -> Cases:
    """Return the outcomes of a test, by its name and the verdict of run-tests.py."""
    expected = (tests / name.partition("#")[0]).read_text(errors="replace")
    if result == "success":
        return compared(expected, None)
    error = results / f"{name}.err"
    if result == "failure" and error.exists():
        return compared(expected, error.read_text(errors="replace"))
    return Cases(problem=result)


def bridged(log: Path) -> Counter[str]:
    """Count the operations over hpss, by test: the bridge writes a line for each."""
    return Counter(log.read_text().splitlines() if log.exists() else ())


# -- the runs


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
