"""vcs.git.fsck_modules: `.gitmodules` as git reads it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from smartserver.vcs.git.fsck_modules import STEP_BYTES, BadConfig, has_no_fault, submodule_settings

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
    "nothing before blanks": b'[submodule "x"]\n url = "" "\\\n" -x\n path = \\\n \\\n  -x\n branch = "" \n',
    "blanks before quotes": b'[submodule "x"]\n url = a ""  \n path = "\\\n  -x " # c\n',
    "a backslash at the end": b'[submodule "x"]\n url = -x\\',
    "what is no blank": b'[submodule "x"]\n url = \x0b-x\x0c\n',
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
        b"[a]\n\x0cb = c\n",
        b"\0",
    ],
)
def test_what_git_does_not_read(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "config"
    file.write_bytes(text)
    assert subprocess.run(["git", "config", "--list", "-f", file], capture_output=True, check=False).returncode != 0
    with pytest.raises(BadConfig, match=r"line [12]"):
        list(submodule_settings(text))


CLEAN = [
    b"",
    b'# a\n\n[submodule "lib/a.b"]\n\tpath = lib/a.b\n\turl = https://example.org:81/a/b.git\n\tbranch = v1.0\n',
    b'[submodule ".vim/x y"]\r\n  path=.vim/x\r\n  url=git@example.org:~a/b\r\n  update=none\r\n',
    b'[submodule "x"]\n\turl = ../../x\n[submodule "y"]\n\turl = ssh://git@h/%s\n' % (b"y" * 1000),
]


@pytest.mark.parametrize("text", CLEAN)
def test_most_files_are_found_clean_by_one_expression(text: bytes) -> None:
    charged: list[int] = []
    assert has_no_fault(text, charged.append)
    assert charged == [len(text) // STEP_BYTES]


SIZE = 30_000
HOSTILE = {
    "quotes": b'[submodule "x"]\nurl = ' + b'"' * SIZE,
    "quoted bytes": b'[submodule "x"]\nurl = ' + b'"a"' * (SIZE // 3),
    "escapes": b'[submodule "x"]\nurl = ' + b"\\n" * (SIZE // 2),
    "continued": b'[submodule "x"]\nurl = a' + b" \\\n" * (SIZE // 3),
    "blanks": b'[submodule "x"]\nurl = a' + b" \t" * (SIZE // 2) + b"b",
    "comments": b"#\n" * (SIZE // 2),
    "a long name": b'[submodule "' + b"a/" * (SIZE // 2) + b'"]\nurl = x',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_is_long_takes_a_step_for_many_bytes(text: bytes) -> None:
    """A value, a name or a comment of any length is a step; its bytes are read by expressions."""
    charged: list[int] = []
    assert len(list(submodule_settings(text, charged.append))) <= 1
    assert sum(charged) <= len(text) // STEP_BYTES + 3


@pytest.mark.parametrize("line", [b"a\n", b"[a]\n", b"a=b\n"])
def test_each_line_takes_a_step_and_a_charge_ends_the_work(line: bytes) -> None:
    lines = 10_000
    text = b'[submodule "x"]\n' + line * lines
    charged: list[int] = []
    list(submodule_settings(text, charged.append))
    assert lines <= sum(charged) <= lines + 2 + len(text) // STEP_BYTES
    left = 1000

    def charge(steps: int) -> None:
        nonlocal left
        left -= steps
        if left < 0:
            raise InterruptedError

    read = submodule_settings(text, charge)
    with pytest.raises(InterruptedError):
        list(read)
    assert -300 < left < 0
