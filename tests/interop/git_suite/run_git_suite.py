"""Run git's own test suite over hpss: `make git-suite`.

The network scripts of git's `t/` run with a git whose remotes on this machine are served over hpss (git_bridge.py).
Those of smart HTTP run with stock git on the gateway (gateway_httpd.py). Each case that fails has its reason in
reasons.toml. The exit status is 1 if a case without a reason fails, or if one with a reason passes.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree

from forks import Forks
from gateway_httpd import RULES, USER
from git_source import built, version
from suites import CannotRun, Cases, Report, end, read_reasons, run_main, suite_server

from smartserver.server.tokens import TokenChanges

HERE = Path(__file__).resolve().parent
REASONS = HERE / "reasons.toml"

FORKS = Forks(
    "git_bridge",
    "encodings.idna",
    "smartserver.trace.bans",
    "smartserver.vcs.git.insert",
    "smartserver.vcs.git.plan",
    "smartserver.vcs.git.read",
    "zstandard",
)
"""Forks the helper, which is started thousands of times."""

LINE = re.compile(r"(ok|not ok) (\d+)(?: - )?(.*)")


def is_http(script: str) -> bool:
    """Tell whether a script is one of git's smart HTTP."""
    return "-http-" in f"{script}-"


def programs_of_http() -> str:
    """Return the folder of the installed `git-remote-http`: git is built without libcurl, whose headers few machines
    have.

    Raises:
        CannotRun: there is none.
    """
    folder = subprocess.run(["git", "--exec-path"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    if not Path(folder, "git-remote-http").exists():
        raise CannotRun(f"git-remote-http is not installed (in {folder})")
    return folder


@dataclass
class GitCases(Cases):
    """The outcomes of the cases of one script."""

    bridged: set[int] = field(default_factory=set)
    """The cases with a command over hpss."""


def cases_of(lines: Sequence[str]) -> GitCases:
    """Read the cases in the output of a script, without skipped cases and known breakages of git."""
    cases = GitCases()
    bridged = complete = False
    for line in lines:
        if line == "# bridged":
            bridged = True
        elif re.fullmatch(r"1\.\.\d+( # SKIP.*)?", line):
            complete = True
        elif found := LINE.fullmatch(line):
            state, number, title = found[1], int(found[2]), found[3]
            if bridged:
                cases.bridged.add(number)
            bridged = False
            if " # TODO known breakage" in title or re.search(r"(^| )# (skip|SKIP)", title):
                continue
            if state == "ok":
                cases.passed.add(number)
            else:
                cases.failed[number] = title
    if not complete:
        cases.problem = "ended early"
    return cases


class Suite:
    """The scripts of one git, a server for them, and the running processes."""

    def __init__(self, source: Path, work: Path, timeout: float) -> None:
        self._tests = source / "t"
        self._work = work
        self._timeout = timeout
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False
        self._url = ""
        self._programs = Path()
        self._gateway: dict[str, str] = {}
        """Variables for the scripts of HTTP."""

    @contextmanager
    def served(self, scripts: Sequence[str]) -> Iterator[None]:
        """Run the servers for the repositories of these scripts."""
        for protocol in ("file", "git"):
            program = self._work / f"git-remote-{protocol}"
            program.write_text("from git_bridge import main\n\nmain()\n")
            self._programs = FORKS.stand_in(program)
        with ExitStack() as until:
            self._url = until.enter_context(suite_server(self._work, "--fsck", "off"))
            if any(map(is_http, scripts)):
                self._gateway = self._gateway_for_http(until)
            yield

    def _gateway_for_http(self, until: ExitStack) -> dict[str, str]:
        work = self._work / "gateway"
        rmtree(work, ignore_errors=True)
        work.mkdir()
        access, program = work / "access.toml", work / "httpd"
        access.write_text(RULES)
        token, _ = TokenChanges(access).create(USER, int(time.time()), None, None, read_only=False)
        options = ("--fsck", "off", "--http", "127.0.0.1:0", "--cache-dir", str(work / "cache"))
        urls = until.enter_context(suite_server(work, *options, rights=("--access", str(access))))
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "gateway_httpd.py"} "$@"\n')
        program.chmod(0o755)
        return {
            "HPSS_GATEWAY": urls,
            "HPSS_TOKEN": token,
            "HPSS_BRIDGE_ROOT": str(work / "served"),
            "LIB_HTTPD_PATH": str(program),
            "PATH": f"{os.environ['PATH']}:{programs_of_http()}",
        }

    def run(self, script: str, *, bridged: bool) -> GitCases:
        """Run a script, over hpss or with git alone."""
        if self._stopped:
            return GitCases(problem="stopped")
        name = script.removesuffix(".sh")
        work = self._work / ("hpss" if bridged else "plain") / name
        rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        log = work / "log"
        kept = ("HOME", "LANG", "PATH", "SMARTSERVER_AGENT", "TERM", "TMPDIR", "XDG_RUNTIME_DIR")
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        if is_http(name):
            text = (self._tests / script).read_text()
            script = str(work / script)
            with open(script, "x") as copy:
                copy.write(text.replace('"$TEST_DIRECTORY"/lib-httpd.sh', str(HERE / "lib-httpd.sh")))
            environment |= {**self._gateway, "HPSS_BRIDGE_WORK": str(work), "HPSS_BRIDGE_LOG": str(log)}
        elif bridged:
            environment |= {
                "HPSS_BRIDGE": self._url,
                "HPSS_BRIDGE_ROOT": str(self._work / "served"),
                "HPSS_BRIDGE_WORK": str(work),
                "HPSS_BRIDGE_LOG": str(log),
                "PATH": f"{self._programs}:{environment['PATH']}",
            }
        command = ["sh", script, "--verbose", "--no-color", f"--root={work}"]
        with open(log, "ab") as file, self._lock:
            if self._stopped:
                return GitCases(problem="stopped")
            process = subprocess.Popen(
                command,
                cwd=self._tests,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
            self._running.add(process)
        problem = ""
        try:
            process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            problem = f"took more than {self._timeout:.0f} seconds"
        finally:
            end(process)
            with self._lock:
                self._running.discard(process)
        cases = cases_of(log.read_text(errors="replace").splitlines())
        cases.problem = problem or cases.problem
        for left in work.glob("trash directory.*"):
            rmtree(left, ignore_errors=True)
        return cases

    def stop(self) -> None:
        """End every script."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                end(process)


def main() -> int:
    """Run the scripts that the command line names, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make git-suite ARGS=...", description=__doc__.split("\n\n")[0])
    parser.add_argument("scripts", nargs="*", help="scripts, as t5510 (default: all of reasons.toml)")
    parser.add_argument(
        "--source", type=Path, help="git's source tree; it is built there (default: Debian's source package)"
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "smartserver" / "git-suite"
    parser.add_argument("--work", type=Path, default=cache, help="folder for the source and the logs (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="scripts at a time (%(default)s)")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one script (%(default)s)")
    options = parser.parse_args()
    reasons = read_reasons(REASONS.read_text(), "git")
    work = options.work.resolve()
    try:
        source = built(options.source, work)
        found = version(source)
        if found != reasons.release:
            print(f"this is git {found}: the numbers in {REASONS.name} are those of {reasons.release}", file=sys.stderr)
        suite = Suite(source, work, options.timeout)
        scripts = reasons.tests
        if options.scripts:
            scripts = [path.stem for name in options.scripts for path in sorted((source / "t").glob(f"{name}*.sh"))]
        with suite.served(scripts):
            return run(suite, Report(reasons), scripts, options.jobs)
    except CannotRun as wrong:
        print(wrong, file=sys.stderr)
        return 2


def run(suite: Suite, report: Report, scripts: Sequence[str], jobs: int) -> int:
    """Run scripts, print the outcome of each as it ends, and return the exit status."""
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(suite.run, f"{name}.sh", bridged=True): name for name in scripts}
        try:
            for done in as_completed(running):
                ended(suite, report, running[done], done.result())
        except BaseException:
            suite.stop()
            raise
    print()
    print("\n".join(report.summary("git")))
    if report.wrong:
        print("\n".join(["", *report.wrong]))
    return 1 if report.wrong else 0


def ended(suite: Suite, report: Report, name: str, cases: GitCases) -> None:
    """Add the outcomes of a script to a report, and print them."""
    passed = cases.passed & cases.bridged
    unknown = cases.failed.keys() - report.known(name).keys()
    if is_http(name):  # Those need Apache, so git alone cannot be run for comparison.
        plain = Cases(passed=set(unknown))
    else:
        plain = suite.run(f"{name}.sh", bridged=False) if unknown or cases.problem else Cases()
    report.counts["passed"] += len(passed)
    report.judge(name, name, cases, plain)
    print(f"{name}: {len(passed)} passed, {len(cases.failed)} failed, {len(unknown)} without a reason", flush=True)


if __name__ == "__main__":
    run_main(main)
