"""What the commands that talk to a server share: a client for a URL, with the tracer where it was asked for,
and the place of the cache.

`git-remote-hpss` starts for every command of git: nothing here takes time to load.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING

import smartserver
from smartserver.client.call import Client
from smartserver.client.places import connect, parse_place
from smartserver.client.plain import plain
from smartserver.trace import text

if TYPE_CHECKING:
    from smartserver.client.medium import Medium
    from smartserver.client.places import Place

AGENT = f"smartserver/{smartserver.__version__}"


@contextmanager
def client_for(
    url: str, flags: Set[str], agent: str = AGENT, environment: Mapping[str, str] = os.environ
) -> Iterator[tuple[Client, Place]]:
    """A client for the server of a URL, and what the URL says. `flags`: `hpss` shows each call on stderr, and `hpssvfs`
    also where in the program each file-level (VFS) call was made.

    SMARTSERVER_FAST_OPEN in the environment (not empty, not 0): its first request may travel with the handshake of TCP.
    SMARTSERVER_SSH: the command that logs in at the server of an hpss+ssh:// URL.

    Raises:
        BadUrl: it is not one.
    """
    location = parse_place(url)
    recorder = text.printing(_say, stacks="hpssvfs" in flags) if flags & {"hpss", "hpssvfs"} else None
    fast_open = environment.get("SMARTSERVER_FAST_OPEN", "") not in ("", "0")

    def connected() -> Medium:
        if recorder is not None:
            recorder.connected()
        return connect(location, environment.get("SMARTSERVER_SSH") or "ssh", fast_open=fast_open)

    observers = [recorder] if recorder is not None else []
    progress = _progress if sys.stderr.isatty() else None
    with Client(connected, observers, agent=agent, progress=progress, copied=fast_open) as client:
        try:
            yield client, location
        finally:
            if recorder is not None:
                _say(text.summary(recorder, time.monotonic()))


def cache_folder(environment: Mapping[str, str]) -> str | None:
    """Where knowledge of remotes is kept: XDG's cache folder; None where the user has no home."""
    base = environment.get("XDG_CACHE_HOME")
    if not base or not os.path.isabs(base):
        home = environment.get("HOME")
        if not home:
            return None
        base = os.path.join(home, ".cache")
    return os.path.join(base, "smartserver", "remotes")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _progress(phase: str, done: int, total: int) -> None:
    if total:
        end = "\n" if done >= total else ""
        print(f"\r{plain(phase)}: {100 * done // total} %", end=end, file=sys.stderr, flush=True)
