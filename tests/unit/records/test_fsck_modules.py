"""records.fsck_modules: `.gitmodules` as git reads it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from smartserver.records.fsck_modules import BadConfig, submodule_settings

PARSED = {
    "nothing": b"",
    "comments": b'# a\n; b\n[submodule "x"] # c\n\turl = u # d\n',
    "quotes": b'[submodule "a b"]\n url = " x # y " z  \n path=a"b"c\n',
    "escapes": b'[submodule "a\\"b\\\\c"]\n url = a\\tb\\nc\\\\\\"\n',
    "continued": b'[submodule "x"]\n url = a\\\n  b\\\nc\n',
    "no value": b'[submodule "x"]\n update\n url =\n',
    "one line": b'[submodule "x"] url = u\n',
    "others": b'[core]\n url = no\n[submodule]\n url = no\n[submodule "x"]\n Url = u\n[other "x"]\n url = no\n',
    "the older form": b"[submodule.Name]\n url = u\n",
    "DOS": b'\xef\xbb\xbf[submodule "x"]\r\n\turl = u\r\n',
    "case": b'[SubModule "Xy"]\n URL = u\n',
    "no newline at the end": b'[submodule "x"]\n url = u',
}


@pytest.mark.parametrize("text", PARSED.values(), ids=PARSED)
def test_it_is_read_as_git_reads_it(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "config"
    file.write_bytes(text)
    done = subprocess.run(["git", "config", "-z", "--list", "-f", file], capture_output=True, check=True)
    expected = []
    for item in done.stdout.split(b"\0")[:-1]:
        key, _, value = item.partition(b"\n")
        if key.startswith(b"submodule.") and key.count(b".") > 1:
            name, _, last = key.removeprefix(b"submodule.").rpartition(b".")
            expected.append((name, last.decode(), value))
    assert list(submodule_settings(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        b"[",
        b"[submodule",
        b'[submodule "x]\n',
        b"[a]\n1=2\n",
        b"[a]\nb ? c\n",
        b'[a]\nb = "c\n',
        b"[a]\nb = \\q\n",
        b"]\n",
        b"\0",
    ],
)
def test_what_git_does_not_read(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "config"
    file.write_bytes(text)
    assert subprocess.run(["git", "config", "--list", "-f", file], capture_output=True, check=False).returncode != 0
    with pytest.raises(BadConfig, match=r"line [12]"):
        list(submodule_settings(text))


def test_what_comes_before_the_mistake_is_given() -> None:
    read = submodule_settings(b'[submodule "x"]\n url = u\n]\n')
    assert next(read) == (b"x", "url", b"u")
    with pytest.raises(BadConfig, match="line 3"):
        next(read)
