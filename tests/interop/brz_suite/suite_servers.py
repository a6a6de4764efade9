"""The two servers of a run, each a process on loopback: one of Breezy's own protocol, and ours."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

SIDES = ("bzr", "hpss")
"""The control first: a case without a remote location over bzr:// has none over hpss://."""

STARTS = 30
"""Seconds that a server may take to listen."""


class Server(NamedTuple):
    """A running server."""

    side: str
    url: str
    """The URL of the served folder, with a slash at its end."""
    root: Path


def _command(side: str, root: Path, allowed: str) -> list[str]:
    if side == "bzr":
        words = ["-m", "breezy", "--no-plugins", "serve", "--allow-writes", "--listen=127.0.0.1", "--port=0"]
        return [sys.executable, *words, f"--directory={root}"]
    words = ["-m", "smartserver.cli.main", "serve", str(root), "--listen", "127.0.0.1:0", "--anonymous", allowed]
    return [sys.executable, *words]


@contextmanager
def serving(side: str, root: Path, allowed: str = "write") -> Iterator[Server]:
    """Serve a folder; the server's output goes to a file beside it."""
    root.mkdir(parents=True, exist_ok=True)
    log = root.with_suffix(f".{allowed}.log")
    with open(log, "wb") as said:
        process = subprocess.Popen(_command(side, root, allowed), stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        yield Server(side, f"{side}://127.0.0.1:{_port(process, log)}/", root)
    finally:
        process.terminate()
        process.wait(STARTS)


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    for _ in range(STARTS * 20):
        found = re.search(rb"(?:listening on port: |hpss://127\.0\.0\.1:)(\d+)", log.read_bytes())
        if found:
            return int(found[1])
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        break
    raise RuntimeError(f"the server does not listen: {log.read_text()}")
