"""smartserver.cli.streams: what a program of ours finds open, and what it writes in any locale."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import fcntl, os, sys
from smartserver.cli.streams import prepare_streams
prepare_streams()
with open(sys.argv[1], "w") as found:
    for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        mode = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE
        print(stream.fileno(), os.readlink(f"/proc/self/fd/{number}"), mode, os.get_inheritable(number), file=found)
print("nobody reads it", file=sys.stderr)
assert sys.stdin.read() == ""
print("written")
sys.stdout.flush()
"""


@pytest.mark.parametrize(
    ("closed", "numbers"), [("<&-", [0]), (">&-", [1]), ("2>&-", [2]), ("<&- >&- 2>&-", [0, 1, 2]), ("", [])]
)
def test_what_is_closed_is_opened(tmp_path: Path, closed: str, numbers: list[int]) -> None:
    words = ["/bin/sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-c", SCRIPT, str(tmp_path / "found")]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    found = (tmp_path / "found").read_text().splitlines()
    modes = [os.O_RDONLY, os.O_RDONLY, os.O_WRONLY]
    assert [line.split()[0] for line in found] == ["0", "1", "2"]
    assert [found[each] for each in numbers] == [f"{each} {os.devnull} {modes[each]} True" for each in numbers]
    # A command must not take it for written.
    assert done.stdout == ("" if 1 in numbers else "written\n")
    assert (done.returncode == 0) is (1 not in numbers)
    assert ("Bad file descriptor" in done.stderr) is (numbers == [1])


@pytest.mark.parametrize(
    ("encoding", "expected"), [("latin-1", rb"\u65e5 " + b"\xe9 \\udcff"), ("utf-8:strict", "日 é \\udcff".encode())]
)
def test_what_an_encoding_lacks_is_escaped(encoding: str, expected: bytes) -> None:
    script = "from smartserver.cli.streams import *; prepare_streams(); print('\\u65e5 \\xe9 \\udcff', end='')"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, check=True)
    assert done.stdout == expected
