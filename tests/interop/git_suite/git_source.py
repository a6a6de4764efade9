"""Git's source, and git built from it with the bridge linked in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from suites import CannotRun

BRIDGE = Path(__file__).resolve().parent / "git_bridge.c"

MAKE = ("NO_CURL=1", "NO_TCLTK=1", "NO_PYTHON=1", "NO_GETTEXT=1", "CFLAGS=-O1")
"""Build options that save time; the scripts need none of the parts left out."""


def built(source: Path | None, work: Path) -> Path:
    """Return a source tree of git with its programs built; without `source`, Debian's.

    Raises:
        CannotRun: something is missing.
    """
    if source is None:
        source = work / "git"
        if not (source / "t").exists():
            _unpack(_download(work / "download"), source)
    source = source.resolve()
    if not (source / "t" / "test-lib.sh").exists():
        raise CannotRun(f"{source} is not a source tree of git: it has no t/test-lib.sh")
    work.mkdir(parents=True, exist_ok=True)
    linked = source / "hpss-bridge.o"
    if not linked.exists() or linked.stat().st_mtime < BRIDGE.stat().st_mtime:
        _run(["cc", f"-I{source}", "-DSHA1_BLK", "-DSHA256_BLK", "-O1", "-c", "-o", str(linked), str(BRIDGE)], work)
        (source / "git").unlink(missing_ok=True)  # Its rule does not name the bridge.
    link = f"LDFLAGS=-Wl,--wrap=transport_get -Wl,--wrap=cmd_clone {linked}"
    print(f"building git {version(source)} in {source}", file=sys.stderr)
    _run(["make", "-C", str(source), "-j2", *MAKE, link, "all"], work)
    return source


def version(source: Path) -> str:
    """Return the release of a source tree."""
    for name in ("GIT-VERSION-FILE", "version", "GIT-VERSION-GEN"):
        if (source / name).exists():
            found = re.search(r"\d+\.\d+\.\d+", (source / name).read_text())
            if found:
                return found[0]
    return "unknown"


def _download(folder: Path) -> Path:
    """Download the upstream archive of Debian's source package, without a change to the system's lists of sources."""
    archives = sorted(folder.glob("git_*.orig.tar.*"))
    if archives:
        return archives[-1]
    (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    fields = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    listed = ""
    if shutil.which("apt-get"):
        listed = _run(["apt-get", "indextargets", "--format", fields, "Created-By: Packages", "Label: Debian"], folder)
    if not listed:
        raise CannotRun("no list of Debian's packages is here (apt-get update): name git's source by --source FOLDER")
    sources = folder / "sources.list"
    sources.write_text("".join(f"deb-src {line}\n" for line in sorted(set(listed.splitlines()))))
    options = [f"Dir::Etc::sourcelist={sources}", "Dir::Etc::sourceparts=-", f"Dir::State::lists={folder / 'lists'}"]
    options.append("APT::Sandbox::User=root")
    apt = ["apt-get", *[word for option in options for word in ("-o", option)]]
    _run([*apt, "update"], folder)
    _run([*apt, "source", "--download-only", "git"], folder)
    return sorted(folder.glob("git_*.orig.tar.*"))[-1]


def _unpack(archive: Path, source: Path) -> None:
    beside = source.with_name(f"{source.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    _run(["tar", "-xf", str(archive), "-C", str(beside), "--strip-components=1"], beside)
    beside.rename(source)


def _run(command: Sequence[str], folder: Path) -> str:
    """Return the output of a command.

    Raises:
        CannotRun: it failed, or is not installed.
    """
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError:
        raise CannotRun(f"{command[0]} is not installed") from None
    if done.returncode:
        log = folder / "failed.log"
        log.write_text(done.stdout + done.stderr)
        raise CannotRun(f"{command[0]} {command[-1]} ended with status {done.returncode}: see {log}")
    return done.stdout
