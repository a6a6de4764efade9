"""Programs and rights that a test needs beyond Python, git, make and the programs of every Linux. Without them the test
is skipped.

    @needs("root")                         a test, a class, a case of a test, or a file (`pytestmark = needs("root")`)
    require("C compiler")                  a fixture
    subprocess.run([program("ps")])        the path of a program

No other file skips a test, and no other file starts one of these programs by its name (`tests/house/test_needs.py`).
With `REQUIRE_ALL=1` a skipped test fails. Each run of pytest ends with the list of skipped tests. In `make`, several
runs write their lists to the folder `LEFT_OUT`, and `python tests/needs.py FOLDER` prints the sum.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from glob import glob
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

LEFT_OUT = os.environ.pop("LEFT_OUT", "")
"""The folder for the list of this run. Runs that a test starts have lists of their own."""

SYSTEM_PROGRAMS = ("/usr/sbin", "/sbin", "/usr/local/sbin", *sorted(glob("/usr/lib/postgresql/*/bin"), reverse=True))
"""Folders that are missing in the path of an ordinary user."""


@dataclass(frozen=True)
class Need:
    """One thing that a machine may lack."""

    source: str
    """The package that has it, mostly of Debian."""
    is_met: Callable[[], bool]


class Missing(FileNotFoundError):
    """This machine lacks a need of a test or a benchmark; the message names the package that has it."""


def find(name: str) -> str | None:
    """Return the path of a program."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *SYSTEM_PROGRAMS]))


def _programs(package: str, *names: str) -> Need:
    return Need(package, lambda: all(map(find, names)))


def _has_network_namespaces() -> bool:
    from netem.link import Link
    from netem.packets.errors import Unavailable
    from netem.packets.network import Packets

    try:
        with Packets(Link(0.001)):
            return True
    except Unavailable:
        return False


def _works(*command: str) -> bool:
    try:
        return subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _has_namespaces() -> bool:
    user = () if os.geteuid() == 0 else ("--user", "--map-current-user")
    return _works("unshare", *user, "--uts", "--mount")


def _identifies_peers() -> bool:
    from smartserver.agent.peer import SO_PEERPIDFD

    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
        except OSError as wrong:
            return wrong.errno != errno.ENOPROTOOPT
        return True


PACKAGES = {
    "cvs": ("cvs",),
    "cvs-fast-export": ("cvs-fast-export",),
    "haproxy": ("haproxy",),
    "nginx-light": ("nginx",),
    "memcached": ("memcached",),
    "openssh-client": ("ssh", "ssh-keygen", "ssh-agent", "ssh-add"),
    "openssh-server": ("sshd",),
    "postgresql": ("initdb", "postgres"),
    "procps": ("ps",),
    "subversion": ("svn", "svnadmin", "svnserve", "svnrdump"),
    "tar": ("tar",),
}
"""Packages of Debian with programs that tests start."""

OF_BENCHMARKS = {"eatmydata": "eatmydata", "fincore": "util-linux-extra", "perf": "linux-perf", "strace": "strace"}
"""Programs that only benchmarks start, and their packages."""

VERSITYGW = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "smartserver/versitygw/1.8.0/versitygw")
"""An S3 store. Its path is fixed here, because tests have another home than their user."""

FAKETIME = glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
"""A library that is loaded before all others, and gives a program another clock."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

NEEDS = {
    **{name: _programs(package, name) for package, names in PACKAGES.items() for name in names},
    **{name: _programs(package, name) for name, package in OF_BENCHMARKS.items()},
    "git-svn": Need("git-svn", lambda: _works("git", "svn", "--version", "--")),
    "C compiler": _programs("gcc and libc6-dev", "cc"),
    "Chromium": Need("chromium", lambda: any(map(find, BROWSERS))),
    "versitygw": Need("make versitygw, with Go 1.25", VERSITYGW.exists),
    "libfaketime": Need("libfaketime", lambda: bool(FAKETIME)),
    "root": Need("run as root", lambda: os.geteuid() == 0),
    "network namespaces": Need("the right to make them: CAP_SYS_ADMIN or user namespaces", _has_network_namespaces),
    "namespaces": Need("the right to make them: CAP_SYS_ADMIN or user namespaces", _has_namespaces),
    "process namespaces": Need("CAP_SYS_ADMIN", lambda: _works("unshare", "--pid", "--mount-proc", "--fork")),
    "user namespaces": Need("permit user namespaces", lambda: _works("unshare", "--user")),
    "SO_PEERPIDFD": Need("Linux 6.5", _identifies_peers),
    "native parts": Need("cargo when smartserver is installed", lambda: find_spec("smartserver._native") is not None),
    "Linux": Need("Linux", lambda: sys.platform == "linux"),
    "/proc": Need("Linux with /proc", lambda: os.path.exists("/proc/self/stat")),
    "hg of this environment": Need("a run without TEST_HG", lambda: "TEST_HG" not in os.environ),
}


@functools.cache
def is_met(name: str) -> bool:
    """Tell whether this machine has a need."""
    return NEEDS[name].is_met()


def needs(*names: str) -> pytest.MarkDecorator:
    """Return a mark by which the test is skipped if one of these is missing."""
    import pytest

    unknown = set(names) - set(NEEDS)
    if unknown:
        raise ValueError(f"tests/needs.py does not know {', '.join(sorted(unknown))}")
    return pytest.mark.needs(*names)


def require(*names: str) -> None:
    """Skip the running test if one of these is missing.

    Raises:
        Missing: one is missing; `tests/conftest.py` skips the test, a benchmark shows the message.
    """
    missing = [f"{name} ({NEEDS[name].source})" for name in names if not is_met(name)]
    if missing:
        raise Missing(f"needs {', '.join(missing)}")


def program(name: str) -> str:
    """Return the path of a program of `PACKAGES`.

    Raises:
        Missing: as `require`.
    """
    require(name)
    found = find(name)
    assert found is not None
    return found


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """Skip the test if `Missing` is raised in this context."""
    import pytest

    try:
        yield
    except Missing as missing:
        pytest.skip(str(missing))


def reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the reason why a test or a file was skipped."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def summary(reasons: Iterable[str]) -> list[str]:
    """Return the list of skipped tests, from the reason of each."""
    counts = Counter(reasons)
    lines = [f"{count:6} {'test ' if count == 1 else 'tests'} {why}" for why, count in sorted(counts.items())]
    return [f"Left out: {counts.total()} tests (REQUIRE_ALL=1 makes them fail)", *lines] if lines else []


def write(reasons: Iterable[str]) -> None:
    """Add the reasons of this run to the folder `LEFT_OUT`."""
    lines = "".join(f"{' '.join(why.split())}\n" for why in reasons)
    Path(LEFT_OUT, str(os.getpid())).write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    texts = [path.read_text(encoding="utf-8") for path in Path(sys.argv[1]).iterdir()]
    print("\n".join(summary(line for text in texts for line in text.splitlines())))
