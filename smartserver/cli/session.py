"""The client of the commands that connect to a server, with a tracer if the user asked for one.

`git-remote-hpss` starts for every command of git, so this module has no slow imports.
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
"""The tool that the commands of `smartserver` present to a server."""


class Untraced:
    """A `Tracing` that shows, bans and records nothing."""

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
    """Open a client for the server of a URL. Yield the client and the parsed URL.

    `flags`: of `smartserver -D`, besides those of SMARTSERVER_DEBUG in the environment, which are separated by commas.
    A server that this process starts for a remote store gets the same flags. `holder`: as in `open_client`.

    Raises:
        BadUrl: the URL is invalid.
        BadFlag: a flag or a rule is invalid.
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
    """Open the repository at a URL, without the imports of a server.

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
    """Open the tracer of one client. It shows, bans and records calls as `flags` and SMARTSERVER_DEBUG specify.
    `program`: the name of this process in the trace; `behind`: as in `text.summary`.

    Raises:
        BadFlag: a flag or a rule is invalid.
    """
    wanted = combined(sorted(flags), environment.get(VARIABLE, ""))
    if not any(wanted):
        yield Untraced()
        return
    from smartserver.trace.tracing import Tracing  # Imported late, since few commands are traced.

    tracing = Tracing(wanted, _say, program, environment, behind)
    try:
        with tracing.listening():
            yield tracing
    finally:
        tracing.close()


def lasting_observers(flags: Set[str], environment: Mapping[str, str] = os.environ) -> list[Observer]:
    """Return the observers for a client that lasts as long as the program. They print no summary.

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
