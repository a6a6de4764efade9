"""`smartserver export`, `ls`, `cat` and `log` as a user runs them, and folders to compare them with."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from git_sides import TIMEOUT, environment
from our_forks import FORKS


class File(NamedTuple):
    """The object at a path. The content of a link is its target; a folder has none."""

    sort: str
    """One of `file`, `executable`, `link` and `folder`."""
    content: bytes = b""


def files_in(folder: Path, *without: bytes) -> dict[bytes, File]:
    """Return everything in a folder except some names at its root."""
    root = os.fsencode(folder)
    found: dict[bytes, File] = {}
    for place, folders, files in os.walk(root):
        if place == root:
            folders[:] = [name for name in folders if name not in without]
        for name in folders + files:
            path = os.path.join(place, name)
            if place != root or name not in without:
                found[os.path.relpath(path, root)] = _file(path)
    return found


def _file(path: bytes) -> File:
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return File("link", os.readlink(path))
    if stat.S_ISDIR(mode):
        return File("folder")
    return File("executable" if mode & 0o100 else "file", Path(os.fsdecode(path)).read_bytes())


class Browser:
    """A user of one repository, with a home of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self._count = 0
        folder.mkdir()

    def run(self, *words: str, status: int = 0) -> bytes:
        """Run `smartserver`; return its output, or its error message where another status than 0 is expected."""
        program = ("-m", "smartserver.cli.main", *words)
        done, out, err = FORKS.run(*program, timeout=TIMEOUT, folder=self.folder, environment=environment(self.folder))
        assert (done, b"" if status else err) == (status, b""), err.decode(errors="replace")
        return err if status else out

    def export(self, at: str = "", *options: str) -> dict[bytes, File]:
        """Return the files of an export. `at`: the end of the URL."""
        self._count += 1
        target = self.folder / f"exported-{self._count}"
        assert self.run("export", self.url + at, str(target), *options) == b""
        return files_in(target)

    def log(self, at: str = "", *options: str) -> list[dict[str, Any]]:
        """Return the revisions of a log."""
        return [msgspec.json.decode(line) for line in self.run("log", "--json", *options, self.url + at).splitlines()]

    def ids(self, at: str = "", *options: str) -> list[str]:
        """Return the ids of the revisions of a log."""
        return [each["id"] for each in self.log(at, "-q", *options)]


def date(seconds: float, east: int) -> str:
    """Return a date as a log shows it; `east`: seconds ahead of UTC."""
    zone = timezone(timedelta(seconds=east))
    return datetime.fromtimestamp(seconds // 1, UTC).astimezone(zone).strftime("%Y-%m-%d %H:%M:%S %z")


def shown(path: bytes) -> str:
    """Return a path as JSON writes it."""
    return path.decode("utf-8", "backslashreplace")
