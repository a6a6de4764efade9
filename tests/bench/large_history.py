"""A git history repeated with different content, to measure a history several times the size of a real one.

    python -m bench.large_history HISTORY OUT.git --times 5

HISTORY is a git repository or a bundle. OUT.git is a new bare repository: the history's commits, then the same commits
again on top of its tip, and so on. From the second copy on, each copy exchanges the letters of every file and of its
name by a rule of its own and adds one line. So no object repeats and no copy is a small delta of another one, while
sizes, and the deltas within a copy, are those of HISTORY. (Were the names the same, git would look for the base of a
file among all its copies: ten copies packed to 1.2 GB.) All dates stay within those of HISTORY. The last copy has the
refs of HISTORY, copy N before it has them as `copy-N/NAME`.

The same HISTORY and the same count give the same objects each time. This program's memory does not depend on the size
of HISTORY; `git repack`, which it ends with, takes what git takes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import string
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.git_histories import copy

EXPORT = ("fast-export", "--all", "--signed-tags=verbatim", "--reencode=no", "--show-original-ids")
MARK = re.compile(rb"^((?:mark|from|merge|M \d+) ):(\d+)")
CHANGE = re.compile(rb"^(M \d+ :?\w+|D) (.*)\n$", re.DOTALL)
LETTERS = re.compile(rb"\\.|[^\\]+", re.DOTALL)
"""Matches an escape in a quoted path, or the bytes between two escapes."""
DATE = re.compile(rb"(\d+) ([-+]\d{4})\n$")
REF = re.compile(rb"^((?:commit|reset) refs/(?:heads|tags)/|tag )")


@dataclass
class Copy:
    """The changes that one copy makes to a `git fast-export` stream."""

    source_tip: bytes
    """The commit, in hex, that the first commits of each copy follow."""
    first: int
    span: int
    """`first` is the time of the oldest commit; `first + span` is after the newest."""
    number: int
    times: int
    last: int
    """The highest mark so far, at first of the copies before."""
    after: int
    tip: int = 0
    """The mark of the source's tip in this copy, once it is written."""

    def __post_init__(self) -> None:
        self._marks, self._table = self.last, letters(self.number)

    def write(self, stream: IO[bytes], out: IO[bytes]) -> None:
        """Write the whole stream with this copy's changes."""
        kind, mark = b"", 0
        root = False
        for line in stream:
            word = line.split(b" ", 1)[0].rstrip(b"\n")
            if root and word != b"from":
                # Without a parent: in a later copy it is a child of the tip before, and its files are all it has.
                out.write(b"from :%d\ndeleteall\n" % self.after)
            root = False
            if word == b"data":
                text = stream.read(int(line[5:]))
                if kind == b"blob":
                    text = self._changed(text)
                out.write(b"data %d\n" % len(text))
                out.write(text)
                root = kind == b"commit" and bool(self.after)
                continue
            if word == b"original-oid":
                if line[13:-1] == self.source_tip:
                    self.tip = mark
                continue
            if word in (b"blob", b"commit", b"tag", b"reset"):
                kind = word
            if word == b"mark":
                self.last = mark = int(line[6:]) + self._marks
            out.write(self._line(word, line))

    def _changed(self, text: bytes) -> bytes:
        return text if not self.number else text.translate(self._table) + b"%d\n" % self.number

    def _renamed(self, found: re.Match[bytes]) -> bytes:
        what, path = found.groups()
        if path.startswith(b'"'):
            path = LETTERS.sub(lambda part: part[0] if part[0][:1] == b"\\" else part[0].translate(self._table), path)
        else:
            path = path.translate(self._table)
        return b"%s %s\n" % (what, path)

    def _line(self, word: bytes, line: bytes) -> bytes:
        if word in (b"M", b"D"):
            line = CHANGE.sub(self._renamed, line)
        if word in (b"mark", b"from", b"merge", b"M"):
            return MARK.sub(lambda found: b"%s:%d" % (found[1], int(found[2]) + self._marks), line)
        if word in (b"author", b"committer", b"tagger"):
            return DATE.sub(self._date, line)
        if self.number + 1 < self.times:
            return REF.sub(rb"\g<1>copy-%d/" % (self.number + 1), line)
        return line

    def _date(self, found: re.Match[bytes]) -> bytes:
        since = min(max(int(found[1]) - self.first, 0), self.span) + self.number * self.span
        return b"%d %s\n" % (self.first + since // self.times, found[2])


def letters(number: int) -> bytes:
    """Return the table by which copy `number` exchanges letters; copy 0 leaves them as they are."""
    shuffled = list(string.ascii_lowercase)
    if number:
        random.Random(number).shuffle(shuffled)
    new = "".join(shuffled)
    return bytes.maketrans(string.ascii_letters.encode(), (new + new.upper()).encode())


@contextlib.contextmanager
def _process(folder: Path, *words: str, **streams: int) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["git", *words], cwd=folder, **streams) as process:  # type: ignore[call-overload]
        yield process
    if process.returncode:
        raise SystemExit(f"git {words[0]} in {folder}: status {process.returncode}")


def _said(folder: Path, *words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=folder, stdout=subprocess.PIPE, check=True).stdout


def repeat(history: Path, out: Path, times: int) -> None:
    """Make the repository `out`, which must not exist."""
    if out.exists():
        raise SystemExit(f"{out} exists: remove it or name another folder")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "source.git"
        branch = copy(history.absolute(), path, os.environ)
        tip = _said(path, "rev-parse", f"refs/heads/{branch}").strip()
        dates = [int(date) for date in _said(path, "log", "--all", "--format=%ct").split()]
        span = max(dates) - min(dates) + 1
        _said(path.parent, "init", "--quiet", "--bare", f"--initial-branch={branch}", str(out.absolute()))
        with _process(out, "fast-import", "--quiet", stdin=subprocess.PIPE) as importer:
            assert importer.stdin is not None
            marks = after = 0
            for number in range(times):
                changed = Copy(tip, min(dates), span, number, times, marks, after)
                with _process(path, *EXPORT, stdout=subprocess.PIPE) as exporter:
                    assert exporter.stdout is not None
                    changed.write(exporter.stdout, importer.stdin)
                marks, after = changed.last, changed.tip
            importer.stdin.close()
    _said(out, "repack", "-adfq")


def main() -> None:
    """Read the arguments and make the repository."""
    parser = argparse.ArgumentParser(prog="python -m bench.large_history", description=__doc__.splitlines()[0])
    parser.add_argument("history", type=Path, help="a git repository or bundle")
    parser.add_argument("out", type=Path, help="the bare repository to make")
    parser.add_argument("--times", type=int, default=5, help="how many copies (default: 5)")
    asked = parser.parse_args()
    if asked.times < 1:
        parser.error(f"--times is {asked.times}, which must be at least 1")
    repeat(asked.history, asked.out, asked.times)


if __name__ == "__main__":
    main()
