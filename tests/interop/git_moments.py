"""The helper's fetch, interrupted at each of its moments in turn.

Run as a program, it forks for each moment. A moment is the call of a function of ours, or the return of a built-in
function to our code, from the call of one function to the end. At a moment Python raises the exception of a signal. A
place in a loop has two moments.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn

import smartserver.client.media.tcp  # Here, so that not every process has to: what a fetch loads when it needs it.
import smartserver.trace.bans  # noqa: F401
from smartserver.cli import git_remote_run

OURS = ("/cli/git_remote_run.py", "/plugins/git/remote.py", "/plugins/git/fetch.py", "/vcs/git/build.py",
        "/vcs/git/insert.py", "/vcs/signals.py")  # fmt: skip
"""The modules that make and remove files."""

WAITING = ("Popen.communicate", "Popen._communicate", "Popen.wait", "Popen._wait", "Popen._handle_exitstatus")


class Moment(NamedTuple):
    """An interrupt; `left` are the files and folders that remain of no use."""

    at: str
    status: int
    left: list[str]


def moments(url: str, commit: str, repository: Path, environment: Mapping[str, str], begin: str) -> list[Moment]:
    """Return the moments of a fetch of a branch `main`, from the call of the function `begin` on."""
    done = subprocess.run(
        [sys.executable, __file__, url, commit, str(repository), begin],
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [Moment(*json.loads(line)) for line in done.stdout.splitlines()]


def main(url: str, commit: str, repository: Path, begin: str) -> None:
    """Print all moments and their outcomes; the last is the fetch that ends without an interrupt."""
    if hasattr(os, "O_TMPFILE"):
        del os.O_TMPFILE  # As on systems that have no files without a name.
    number = 0
    at = "?"
    while at:
        number += 1
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            fetch(url, commit, repository, begin, number, write)
        os.close(write)
        with open(read, encoding="utf-8") as said:
            at = said.read()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps(Moment(at, status, list(leftovers(repository)))))
        shutil.rmtree(repository / "objects")
        (repository / "objects").mkdir()
        shutil.rmtree(Path(os.environ["HOME"]) / ".cache", ignore_errors=True)


def leftovers(repository: Path) -> Iterator[str]:
    for path in repository.rglob("*"):
        half = path.suffix == ".pack" and not path.with_suffix(".idx").exists()
        if half or path.name.startswith("tmp_") or path.name.endswith((".keep", ".lock")):
            yield str(path.relative_to(repository))


def fetch(url: str, commit: str, repository: Path, begin: str, number: int, said: int) -> NoReturn:
    """Run as the helper, get interrupted at the moment of this number, and write its place to `said`."""
    kill, me = os.kill, os.getpid()
    left = 0
    seen: Counter[tuple[str, int, str]] = Counter()

    def look(frame: FrameType, event: str, called: object) -> None:
        nonlocal left
        if not left and event == "call" and frame.f_code.co_qualname == begin:
            left = number
        if left and event in ("call", "c_return") and is_ours(frame):
            what = getattr(called, "__name__", "") if event == "c_return" else "begins"
            place = (frame.f_code.co_qualname, frame.f_lineno, what)
            seen[place] += 1
            left -= seen[place] <= 2
            if not left:
                sys.setprofile(None)
                os.write(said, f"{place[0]} {what}".encode())
                kill(me, signal.SIGINT)

    read, write = os.pipe()
    os.write(write, f"list\nfetch {commit} refs/heads/main\n\n".encode())
    os.close(write)
    os.dup2(read, 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.setprofile(look)
    with contextlib.suppress(BaseException):
        os._exit(git_remote_run.serve("origin", url, {**os.environ, "GIT_DIR": str(repository)}, parent=os.getppid()))
    os._exit(99)


def is_ours(frame: FrameType) -> bool:
    """Tell whether a frame is our code, its use of `contextlib`, or a wait for a process. Code below these may
    have started something that nothing else knows yet."""
    if frame.f_code.co_filename == subprocess.__file__:
        return frame.f_code.co_qualname in WAITING
    if frame.f_code.co_filename == contextlib.__file__ and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename.endswith(OURS)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
