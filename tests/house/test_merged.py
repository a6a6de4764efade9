"""No file of the project has the marks of a merge that was not finished."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from sources import ROOT

MARKS = re.compile(rb"^(?:<{7}|>{7}) ", re.MULTILINE)


def marked(content: bytes) -> list[int]:
    """The lines that begin with such a mark; a file that is no text has none."""
    if b"\0" in content:
        return []
    return [content.count(b"\n", 0, found.start()) + 1 for found in MARKS.finditer(content)]


def files() -> list[Path]:
    """All that git tracks, else all there is (of a copy without its history) but for what tools made."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return [path for name in listed.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]
    return [path for path in ROOT.rglob("*") if path.is_file() and not any(p.startswith(".") for p in path.parts)]


def test_every_merge_was_finished() -> None:
    found = [f"{path.relative_to(ROOT)}:{line}" for path in files() for line in marked(path.read_bytes())]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\n" + b"<" * 7 + b" HEAD\nb\n=======\nc\n" + b">" * 7 + b" other\n", [2, 6]),
        (b"a " + b"<" * 7 + b" HEAD\n", []),
        (b"Title\n=======\n" + b">" * 8 + b" quoted\n", []),
        (b"\0\n" + b"<" * 7 + b" HEAD\n", []),
    ],
)
def test_the_check_itself(content: bytes, lines: list[int]) -> None:
    assert marked(content) == lines
