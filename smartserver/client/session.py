"""`open_client`: the client of a command for one server. Every tool opens its client here, so that each environment
variable means the same to all tools.

SMARTSERVER_AGENT=0: no connection is taken from the user's agent, or given to it.
SMARTSERVER_FAST_OPEN (not empty, not 0): the first request may travel with the handshake of TCP.
SMARTSERVER_SSH: the program that logs in at the server of an hpss+ssh:// URL.
SMARTSERVER_TOKEN: HOST[:PORT]=TOKEN, the token for that server if it requires one.

A tool with its own settings for these passes an environment that contains them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from smartserver.client.call import Caller, Client
from smartserver.client.credentials import TOKEN_VARIABLE, SourceOf, credentials_for
from smartserver.client.held import Holder, holder_for
from smartserver.client.knowledge import cache_folder
from smartserver.client.places import connect, login_of
from smartserver.wire.observer import Observer

if TYPE_CHECKING:
    from smartserver.client.medium import Medium
    from smartserver.client.places import Place

FAST_OPEN_VARIABLE = "SMARTSERVER_FAST_OPEN"


class Tool(NamedTuple):
    """The program that talks to a server."""

    agent: str
    """The name and release of the program, as sent in requests."""
    ssh: Callable[[], Sequence[str]] = lambda: ("ssh",)
    """A function that returns the words of the login command if SMARTSERVER_SSH is not set."""
    source: SourceOf | None = None
    """A function that returns the place where the tool stores tokens; None for tokens from the environment alone."""


class Traced(Protocol):
    """A trace of the client's calls, or none."""

    @property
    def observers(self) -> Sequence[Observer]:
        """The observers of the client."""

    @property
    def traceparent(self) -> str:
        """The trace that requests belong to (W3C Trace Context); empty if none is recorded."""


def open_client(
    place: Place,
    tool: Tool,
    environment: Mapping[str, str],
    traced: Traced,
    flags: Collection[str] = (),
    holder: Holder | None = None,
) -> Client:
    """Return a client for the server of a place, which connects at its first request.

    `flags`: the flags of `-D` for a server that is started on this machine. `holder`: keeps connections between
    commands; by default the user's agent, if it may hold them.
    """
    login = login_of(place, environment, tool.ssh)
    keeper = holder or holder_for(place, login, environment)
    fast_open = environment.get(FAST_OPEN_VARIABLE, "") not in ("", "0")

    def connected() -> Medium:
        return connect(place, login, fast_open=fast_open, flags=flags, lends=keeper is not None)

    token = environment.get(TOKEN_VARIABLE, "")
    credentials = credentials_for(place, cache_folder(environment), token, tool.source)
    caller = Caller(tool.agent, place.above, credentials, keeper, traced.traceparent)
    return Client(connected, traced.observers, caller)
