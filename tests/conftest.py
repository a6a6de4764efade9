"""What holds for every test: no environment of the user's, and with REQUIRE_ALL=1 a test that is left out is a failure.

And for those that run commands which make folders, where these are.
"""

from __future__ import annotations

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
"""Warnings of a C compiler that are errors."""

REQUIRE_ALL = os.environ.get("REQUIRE_ALL") == "1"

BANS = "SMARTSERVER_DEBUG"
"""Where `smartserver.pytest_plugin` says what is banned, for commands too: from the first test's first fixture on."""

NATIVE = "SMARTSERVER_NATIVE"
"""0 turns native parts off (`records.native.OFF`), in all programs that tests start."""

TEST_HG = os.environ.get("TEST_HG")
"""The folder of another release of hg than that of this environment (`make hg-versions`)."""

os.environ.pop(BANS, None)  # The user's.

# No test may fail for being slow on a busy machine, so nothing here has a deadline.
_SLOW = [HealthCheck.too_slow]
settings.register_profile("developer", deadline=None, suppress_health_check=_SLOW)
settings.register_profile("ci", deadline=None, suppress_health_check=_SLOW, derandomize=True, database=None)
settings.register_profile("deep", deadline=None, suppress_health_check=_SLOW, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if REQUIRE_ALL else "developer"))


@pytest.fixture(scope="session", autouse=True)
def _no_environment_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A home of its own, and no git settings: neither the user's, nor those of a hook that runs the tests. The programs
    this environment installs come first in the path, so that git finds the remote program under test. Signals that a
    shell or `nohup` has background programs ignore do what they always do."""
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
    """Where commands make their folders: nothing may be left there."""
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
    """A real S3 store on loopback, whose first gateway the environment names; another with `make engine-suite`."""
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
    """The folder of the programs that git runs: as pip makes them, or in C."""
    return str(request.getfixturevalue("compiled")) if request.param == "c" else os.path.dirname(sys.executable)


def pytest_collection_finish() -> None:
    """What was collected stays to the end: Python's collector need not look through thousands of tests each time."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*names): left out where one of these of tests/needs.py is missing")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """The marks come before any fixture: one of a session would be made for nothing."""
    with needs.left_out():
        needs.require(*(name for mark in item.iter_markers("needs") for name in mark.args))
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    with needs.left_out():
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was left out: at the end of this run, or for the list of all runs."""
    reasons = [needs.reason(each) for each in terminalreporter.stats.get("skipped", [])]
    if needs.LEFT_OUT:
        needs.write(reasons)
    else:
        terminalreporter.write("".join(f"{line}\n" for line in needs.summary(reasons)))


def _why(report: pytest.TestReport | pytest.CollectReport) -> str:
    return f"REQUIRE_ALL=1, but this was not run: {needs.reason(report)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that skips fails, with its reason; an expected failure (strict anyway) is no skip."""
    report = yield
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", _why(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """So does a whole file that skips."""
    report = yield
    if REQUIRE_ALL and report.skipped:
        report.outcome, report.longrepr = "failed", _why(report)
    return report
