"""Mercurial's own tests: its source distribution carries them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from suites import CannotRun


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
