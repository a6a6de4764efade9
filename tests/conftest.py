"""The fixtures and rules of every test: no environment of the user's, and with REQUIRE_ALL=1 a skipped test fails.

Tests of commands that make folders get a folder in which these are made.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import needs
import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from postgres import Postgres
    from sshd import Sshd
    from versitygw import S3

STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
"""The warnings of a C compiler that count as errors."""

PATIENCE = 60
"""Seconds for the threads that tests left to end, after the last test."""

REQUIRE_ALL = os.environ.get("REQUIRE_ALL") == "1"

BANS = "SMARTSERVER_DEBUG"
"""The variable that bans calls (`smartserver.pytest_plugin`), in commands too. It is set from the first fixture on."""

NATIVE = "SMARTSERVER_NATIVE"
"""The variable that turns native parts off (`records.native.OFF`) in all programs that tests start, if 0."""

TEST_HG = os.environ.get("TEST_HG")
"""The folder of another release of hg than this environment's (`make hg-versions`)."""

os.environ.pop(BANS, None)  # The user's.

# No test may fail for being slow on a busy machine, so nothing here has a deadline.
_SLOW = [HealthCheck.too_slow]
settings.register_profile("developer", deadline=None, suppress_health_check=_SLOW)
settings.register_profile("ci", deadline=None, suppress_health_check=_SLOW, derandomize=True, database=None)
settings.register_profile("deep", deadline=None, suppress_health_check=_SLOW, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if REQUIRE_ALL else "developer"))


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """End a run whose own end waits for a thread that a test left, and show where the thread is."""
    faulthandler.dump_traceback_later(PATIENCE, exit=True)


@pytest.fixture(scope="session", autouse=True)
def _no_environment_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the tests a home of their own and no git settings, neither the user's nor those of a hook that runs the
    tests. The installed programs come first in the path, so that git finds the remote program under test. Signals that
    a shell or `nohup` has background programs ignore get their default action."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("AWS_", "GIT_", "SMARTSERVER_", "XDG_")) and name not in (BANS, NATIVE):
                patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
        if TEST_HG:
            patch.setenv("PATH", TEST_HG, prepend=os.pathsep)
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        patch.setenv("LC_ALL", "C.UTF-8")
        patch.setenv("CC", "false")  # So that no test replaces the programs of this environment.
        patch.setenv("SMARTSERVER_AGENT", "0")  # Each command is tested alone; what tests the agent turns it on.
        yield


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which commands make theirs; nothing may be left in it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A real OpenSSH server on loopback."""
    from sshd import Sshd

    with Sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real PostgreSQL on loopback."""
    from postgres import Postgres

    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A real S3 store on loopback; the environment has its first gateway. `make engine-suite` runs another store."""
    from versitygw import S3, environment

    if os.environ.get("TEST_SEAWEED"):
        from seaweed import Seaweed as S3  # type: ignore[assignment]

    with S3(tmp_path_factory.mktemp("s3")) as store, pytest.MonkeyPatch.context() as patch:
        for name, value in environment(store.gateways[0].endpoint).items():
            patch.setenv(name, value)
        yield store


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs in C, compiled without a warning."""
    from smartserver.agent.compiled import OPTIONS, PROGRAMS, compile_to

    needs.require("C compiler")
    folder = tmp_path_factory.mktemp("compiled")
    compile_to([str(folder / each) for each in PROGRAMS], {**os.environ, "CC": "cc"}, (*OPTIONS, *STRICT))
    return folder


@pytest.fixture(params=["python", "c"])
def programs(request: pytest.FixtureRequest) -> str:
    """The folder of the programs that git runs: made by pip, or in C."""
    return str(request.getfixturevalue("compiled")) if request.param == "c" else os.path.dirname(sys.executable)


def pytest_collection_finish() -> None:
    """Exempt the collected tests from garbage collection, so that Python does not walk thousands of them each time."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*names): left out where one of these of tests/needs.py is missing")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Apply the marks before any fixture, so that no session fixture is made for a skipped test."""
    with needs.left_out():
        needs.require(*(name for mark in item.iter_markers("needs") for name in mark.args))
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    with needs.left_out():
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report the skipped tests: at the end of this run, or for the list of all runs."""
    reasons = [needs.reason(each) for each in terminalreporter.stats.get("skipped", [])]
    if needs.LEFT_OUT:
        needs.write(reasons)
    else:
        terminalreporter.write("".join(f"{line}\n" for line in needs.summary(reasons)))


def _why(report: pytest.TestReport | pytest.CollectReport) -> str:
    return f"REQUIRE_ALL=1, but this was not run: {needs.reason(report)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that skips, with its reason; an expected failure (strict anyway) is no skip."""
    report = yield
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", _why(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a whole file that skips."""
    report = yield
    if REQUIRE_ALL and report.skipped:
        report.outcome, report.longrepr = "failed", _why(report)
    return report
