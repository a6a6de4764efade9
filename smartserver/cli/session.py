"""The client of the commands that talk to a server: for a URL, with the tracer where it was asked for.

`git-remote-hpss` starts for every command of git: nothing here takes time to load.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING

import smartserver
from smartserver.client.call import Client
from smartserver.client.held import Holder
from smartserver.client.knowledge import Knowledge, cache_folder
from smartserver.client.places import behind, parse_place
from smartserver.client.plain import plain, plain_lines
from smartserver.client.session import Tool, open_client
from smartserver.trace.flags import VARIABLE, combined
from smartserver.wire.observer import Observer

if TYPE_CHECKING:
    from smartserver.client.places import Place
    from smartserver.client.repository import RemoteRepository
    from smartserver.trace.tracing import Tracing

AGENT = f"smartserver/{smartserver.__version__}"

COMMANDS = Tool(AGENT)
"""The commands of `smartserver`."""


class Untraced:
    """Stands for a `Tracing` where nothing is shown, banned or recorded."""

    observers: Sequence[Observer] = ()
    traceparent = ""


@contextmanager
def client_for(
    url: str,
    flags: Set[str],
    tool: Tool = COMMANDS,
    environment: Mapping[str, str] = os.environ,
    holder: Holder | None = None,
) -> Iterator[tuple[Client, Place]]:
    """A client for the server of a URL, and what the URL says. `flags`: those of `smartserver -D`; SMARTSERVER_DEBUG in
    the environment has more, with commas between them. A server that is started here for files behind a link is told
    the same. `holder`: as of `open_client`.

    Raises:
        BadUrl: it is not one.
        BadFlag: a flag or a rule is none.
    """
    place = parse_place(url)
    with (
        tracing_for(flags, tool.agent, environment, behind(place)) as tracing,
        open_client(place, tool, environment, tracing, sorted(flags), holder) as client,
    ):
        client.progress = _progress if sys.stderr.isatty() else None
        yield client, place


@contextmanager
def repository_on_server(url: str, flags: Set[str]) -> Iterator[RemoteRepository]:
    """The repository at a URL; what serves one is not loaded.

    Raises:
        BadUrl, BadFlag: as `client_for`.
    """
    from smartserver.client.repository import RemoteRepository

    with client_for(url, flags) as (client, location):
        yield RemoteRepository(client, location.path, Knowledge(cache_folder(os.environ), location.key))


@contextmanager
def tracing_for(
    flags: Set[str], program: str = AGENT, environment: Mapping[str, str] = os.environ, behind: str = ""
) -> Iterator[Tracing | Untraced]:
    """The tracer of one client: it shows, bans and records calls as the flags and SMARTSERVER_DEBUG say (`client_for`).
    `program`: as the trace names this process; `behind`: as of `text.summary`.

    Raises:
        BadFlag: a flag or a rule is none.
    """
    wanted = combined(sorted(flags), environment.get(VARIABLE, ""))
    if not any(wanted):
        yield Untraced()
        return
    from smartserver.trace.tracing import Tracing  # Few commands are traced.

    tracing = Tracing(wanted, _say, program, environment, behind)
    try:
        with tracing.listening():
            yield tracing
    finally:
        tracing.close()


def lasting_observers(flags: Set[str], environment: Mapping[str, str] = os.environ) -> list[Observer]:
    """The observers for a client that lasts as long as the program; nothing is summed up.

    Raises:
        BadFlag: as `tracing_for`.
    """
    from smartserver.trace.tracing import Tracing

    tracing = Tracing(combined(sorted(flags), environment.get(VARIABLE, "")), _say, AGENT, environment)
    if tracing.records:
        atexit.register(tracing.end)
    return tracing.observers


def _say(line: str) -> None:
    print(plain_lines(line), file=sys.stderr, flush=True)


def _progress(phase: str, done: int, total: int) -> None:
    if total:
        end = "\n" if done >= total else ""
        print(f"\r{plain(phase)}: {100 * done // total} %", end=end, file=sys.stderr, flush=True)
