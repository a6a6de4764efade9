"""Brz commands as processes forked from one that has imported Breezy, so that a start takes a third of the time.

Run as a program it is that process: it imports what most commands import, of Breezy's and of ours, but no plugin, and
forks for each who asks on its standard input, a socket. What belongs to a start itself (an import that is missing, a
signal that comes meanwhile) is tried where brz is started as users do it: `Users.start`, `test_brz_process`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

IMPORTED = (
    "breezy.annotate",
    "breezy.breakin",
    "breezy.builtins",
    "breezy.bzr.branch",
    "breezy.bzr.groupcompress_repo",
    "breezy.bzr.smart.medium",
    "breezy.bzr.testament",
    "breezy.bzr.transform",
    "breezy.bzr.workingtree_4",
    "breezy.email_message",
    "breezy.forge",
    "breezy.git",
    "breezy.gpg",
    "breezy.merge",
    "breezy.plugin",
    "breezy.push",
    "breezy.revisionspec",
    "breezy.rules",
    "breezy.transport.http.urllib",
    "breezy.transport.memory",
    "breezy.ui.text",
    "breezy.views",
    "dataclasses",
    "dulwich.config",
    "logging",
    "msgspec",
    "smartserver.client.listing",
    "smartserver.client.media.tcp",
    "smartserver.client.places",
    "smartserver.client.repository",
    "smartserver.client.shadows",
    "smartserver.records.bulk",
    "smartserver.records.bzr_tree",
    "smartserver.trace.text",
    "smartserver.vcs.brz",
    "smartserver.verbs.map_update",
    "smartserver.verbs.repository_list",
    "smartserver.verbs.repository_verify",
    "urllib.parse",
    "zstandard",
)


class Forks:
    """Processes of brz; the one they are forked from starts with the first."""

    def __init__(self) -> None:
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], timeout: float
    ) -> tuple[int, bytes, bytes]:
        """Exit status, standard output and standard error of a command, in a process group of its own.

        Raises:
            TimeoutError: it took longer than `timeout` seconds, and was killed.
        """
        ours, theirs = socket.socketpair()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, ours:
            with theirs:
                fds = [theirs.fileno(), out.fileno(), err.fileno()]
                socket.send_fds(self._asked(environment), [b"\0"], fds)
            ours.settimeout(timeout)
            with ours.makefile("rw", encoding="utf-8") as answer:
                print(json.dumps([list(words), str(folder), dict(environment)]), file=answer, flush=True)
                process = int(answer.readline())
                try:
                    status = int(answer.readline())
                except BaseException:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process, signal.SIGKILL)
                    raise
            out.seek(0)
            err.seek(0)
            return status, out.read(), err.read()

    def _asked(self, environment: Mapping[str, str]) -> socket.socket:
        if self._control is None:
            self._control, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen([sys.executable, __file__], stdin=theirs.fileno(), env=environment)
        return self._control

    def close(self) -> None:
        """End the process they are forked from."""
        if self._control is not None and self._process is not None:
            self._control.close()
            self._process.wait()
            self._control = self._process = None


def serve() -> None:
    """Fork for each who asks, until nobody can."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody waits for those that wait for a brz.
    with socket.socket(fileno=os.dup(0)) as control:
        while (asked := socket.recv_fds(control, 1, 3))[0]:
            fds = asked[1]
            if os.fork() == 0:
                keep(*fds)
            for fd in fds:
                os.close(fd)


def keep(asking: int, out: int, err: int) -> NoReturn:
    """Run what is asked for, and tell its process and its exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.socket(fileno=asking).makefile("rw", encoding="utf-8") as answer:
        words, folder, environment = json.loads(answer.readline())
        process = os.fork()
        if process == 0:
            become(words, folder, environment, out, err)
        print(process, file=answer, flush=True)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), file=answer, flush=True)
    os._exit(0)


def become(words: list[str], folder: str, environment: dict[str, str], out: int, err: int) -> NoReturn:
    """Be what `python -m breezy` is."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for fd, to in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (err, 2)):
        os.dup2(fd, to)
    os.closerange(3, 256)
    sys.argv[1:] = words
    sys.path[0] = folder
    status: str | int | None = 1
    try:
        runpy.run_module("breezy", run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else int(status is not None))


if __name__ == "__main__":
    serve()
