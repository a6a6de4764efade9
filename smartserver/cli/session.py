"""What the commands that talk to a server share: a client for a URL, with the tracer where it was asked for.

`git-remote-hpss` starts for every command of git: nothing here takes time to load.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING

import smartserver
from smartserver.client.call import Client
from smartserver.client.credentials import TOKEN_VARIABLE, SourceOf, credentials_for
from smartserver.client.held import Holder, holder_for
from smartserver.client.knowledge import Knowledge, cache_folder
from smartserver.client.places import behind, connect, login_of, parse_place
from smartserver.client.plain import plain, plain_lines
from smartserver.trace.flags import VARIABLE, combined
from smartserver.wire.observer import Observer

if TYPE_CHECKING:
    from smartserver.client.medium import Medium
    from smartserver.client.places import Place
    from smartserver.client.repository import RemoteRepository
    from smartserver.trace.tracing import Tracing

AGENT = f"smartserver/{smartserver.__version__}"


class Untraced:
    """What stands for a `Tracing` where nothing is shown, banned or recorded."""

    observers: Sequence[Observer] = ()
    traceparent = ""


@contextmanager
def client_for(
    url: str,
    flags: Set[str],
    agent: str = AGENT,
    environment: Mapping[str, str] = os.environ,
    ssh: Callable[[], Sequence[str]] = lambda: ("ssh",),
    holder: Holder | None = None,
    source: SourceOf | None = None,
) -> Iterator[tuple[Client, Place]]:
    """A client for the server of a URL, and what the URL says. `flags`: those of `smartserver -D`. A server that is
    started here for files behind a link is told the same. `holder`: what keeps connections; default: the user's agent.
    `source`: where the user keeps tokens, besides the environment.

    SMARTSERVER_DEBUG in the environment has more flags, with commas between them.
    SMARTSERVER_FAST_OPEN (not empty, not 0): its first request may travel with the handshake of TCP.
    SMARTSERVER_SSH: the program that logs in at the server of an hpss+ssh:// URL, else what `ssh` gives.
    SMARTSERVER_AGENT=0: no connection is taken from the user's agent, or given to it.
    SMARTSERVER_TOKEN: HOST[:PORT]=TOKEN, for that server if it wants one.

    Raises:
        BadUrl: it is not one.
        BadFlag: a flag or a rule is none.
    """
    location = parse_place(url)
    fast_open = environment.get("SMARTSERVER_FAST_OPEN", "") not in ("", "0")

    words = login_of(location, environment, ssh)
    holding = holder or holder_for(location, words, environment)

    def connected() -> Medium:
        return connect(location, words, fast_open=fast_open, flags=sorted(flags), lends=holding is not None)

    credentials = credentials_for(location, cache_folder(environment), environment.get(TOKEN_VARIABLE, ""), source)
    progress = _progress if sys.stderr.isatty() else None
    with (
        tracing_for(flags, agent, environment, behind(location)) as tracing,
        Client(
            connected,
            tracing.observers,
            agent=agent,
            progress=progress,
            above=location.above,
            holder=holding,
            credentials=credentials,
            traceparent=tracing.traceparent,
        ) as client,
    ):
        yield client, location


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
    """What shows, bans and records the calls of one client, as the flags and SMARTSERVER_DEBUG say (`client_for`).
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
