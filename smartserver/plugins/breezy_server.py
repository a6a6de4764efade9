"""`Server`: the one connection of a command to a server, and what is kept of it between commands."""

from __future__ import annotations

import os

from breezy import bedding
from breezy.config import GlobalStack, Option, bool_from_store, option_registry

import smartserver
from smartserver.client.call import Client
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.url import Location
from smartserver.plugins.breezy_history import History
from smartserver.plugins.breezy_progress import ServerProgress
from smartserver.plugins.breezy_tracer import tracer

AGENT = f"brz smartserver/{smartserver.__version__}"

FAST_OPEN = Option(
    "hpss.fast_open",
    default=False,
    from_unicode=bool_from_store,
    override_from_env=["SMARTSERVER_FAST_OPEN"],
    help="Let the first request to an hpss:// server travel with the handshake (TCP Fast Open).",
)
option_registry.register(FAST_OPEN)


class Server:
    """What every transport of one server shares."""

    def __init__(self, location: Location) -> None:
        self.location = location
        fast_open = bool(GlobalStack().get(FAST_OPEN.name))
        recorder = tracer(location.where)

        def connect() -> TcpMedium:
            if recorder is not None:
                recorder.connected()
            return TcpMedium(location.host, location.port, fast_open=fast_open)

        self._unread: History | None = None
        observers = [recorder] if recorder is not None else []
        self.client = Client(connect, observers, agent=AGENT, progress=ServerProgress(), copied=fast_open)

    def read_on(self, history: History) -> None:
        """Have the body of this one unread on the connection."""
        self._unread = history

    def settle(self) -> None:
        """Receive what is unread: only then another request can go the same way.

        Raises:
            CodedError, MediumError, ProtocolError, Malformed: it could not be received whole.
        """
        unread, self._unread = self._unread, None
        if unread is not None:
            unread.receive()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self.client.close()


_servers: dict[str, Server] = {}


def server_of(location: Location) -> Server:
    """The one this process talks to; Breezy opens a transport anew for each URL of a command."""
    if location.where not in _servers:
        _servers[location.where] = Server(location)
    return _servers[location.where]


def cache_folder() -> str:
    """Where knowledge of remotes is kept, that of git's users too: beside the folder of Breezy's own caches."""
    return os.path.join(os.path.dirname(bedding.cache_dir()), "smartserver", "remotes")
