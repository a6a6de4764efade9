"""The common part of the suites of git and of Mercurial over hpss: a server, the list of reasons, and the counts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple


class CannotRun(Exception):
    """A suite cannot be downloaded, built or run; the message is one line for the user."""


@contextmanager
def suite_server(work: Path, *options: str, rights: Sequence[str] = ("--anonymous", "write")) -> Iterator[str]:
    """Run a server of the folder `served` in `work`, empty at first. Yield its URL, and after a space that of its
    gateway, if there is one.

    Raises:
        CannotRun: it ended.
    """
    root, log, count = work / "served", work / "server.log", 1 + ("--http" in options)
    rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    command = [sys.executable, "-m", "smartserver.cli.main", "serve", str(root)]
    command += ["--listen", "127.0.0.1:0", *rights, *options]
    with open(log, "wb") as file:
        server = subprocess.Popen(command, stderr=file, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        while len(found := re.findall(r"(?:hpss|http)://127\.0\.0\.1:\d+", log.read_text())) < count:
            if server.poll() is not None:
                raise CannotRun(f"the server ended: {log.read_text().strip()}")
            with suppress(subprocess.TimeoutExpired):
                server.wait(0.05)
        yield " ".join(found)
    finally:
        server.terminate()
        server.wait()


class Reasons(NamedTuple):
    """The content of a reasons.toml."""

    release: str
    """The release of the tool whose cases the file names."""
    words: Mapping[str, str]
    """The closed list of reasons."""
    tests: Sequence[str]
    """The tests to run."""
    cases: Mapping[tuple[str, int], str]
    """The reason of each case that fails, by test and number."""


def read_reasons(text: str, tool: str) -> Reasons:
    """Read the content of a reasons.toml. `tool`: the key of its release there.

    Raises:
        ValueError: a case has a reason that is not in the list, or two.
    """
    content = tomllib.loads(text)
    cases: dict[tuple[str, int], str] = {}
    for test, by_reason in content["tests"].items():
        for reason, numbers in by_reason.items():
            if reason not in content["reasons"]:
                raise ValueError(f"{test}: {reason} is not in the list of reasons")
            for number in numbers:
                if (test, number) in cases:
                    raise ValueError(f"{test}: {number} has two reasons")
                cases[test, number] = reason
    return Reasons(content[tool], content["reasons"], list(content["tests"]), cases)


@dataclass
class Cases:
    """The outcomes of the cases of one test, by their numbers."""

    passed: set[int] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)
    """The titles of the failed cases."""
    problem: str = ""
    """The reason why the test did not reach its end."""


@dataclass
class Report:
    """The outcomes of the tests that have ended."""

    reasons: Reasons
    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """The number of cases by reason, and of those that passed."""
    faulty: int = 0
    """The number of cases that fail with the tool alone, too, and are left out."""

    def known(self, test: str) -> dict[int, str]:
        """Return the cases of a test that have a reason."""
        return {number: reason for (each, number), reason in self.reasons.cases.items() if each == test}

    def judge(self, test: str, name: str, cases: Cases, plain: Cases) -> None:
        """Count the failed cases of a test, called `name` in the report. `plain`: the outcomes with the tool alone."""
        known = self.known(test)
        for number, title in sorted(cases.failed.items()):
            if number in known:
                self.counts[known[number]] += 1
            elif number in plain.passed:
                self.counts["without a reason"] += 1
                self.wrong.append(f"{name}:{number} fails: {title}")
            else:
                self.faulty += 1
        passed = sorted(known.keys() & cases.passed)
        self.wrong += [f"{name}:{number} passes now; remove it from reasons.toml" for number in passed]
        if cases.problem and not plain.problem:
            self.wrong.append(f"{name}: {cases.problem}")

    def summary(self, tool: str, more: str = "") -> Iterator[str]:
        """Yield lines with the number of cases that passed (`counts["passed"]`), that failed for each reason, and that
        fail with the tool alone. `more`: the end of the first line."""
        yield f"{self.counts.total()} cases, {self.counts['passed']} passed{more}"
        for reason, count in self.counts.most_common():
            if reason != "passed":
                yield f"{count:5} {self.reasons.words.get(reason, reason)}"
        if self.faulty:
            yield f"{self.faulty} more fail with {tool} alone, too"


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_main(main: Callable[[], int]) -> None:
    """Run a command; signals end it as ^C does."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
