"""`Server`: the one connection of a command to a server, and what is kept of it between commands."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import breezy
from breezy.config import GlobalStack, Option, bool_from_store, option_registry

import smartserver
from smartserver.client import knowledge
from smartserver.client.call import Client
from smartserver.client.credentials import TOKEN_VARIABLE, credentials_for
from smartserver.client.held import holder_for
from smartserver.client.medium import Medium
from smartserver.client.places import behind, connect, login_of, of_buckets, served_by
from smartserver.client.url import Location
from smartserver.plugins.breezy.credentials import BreezyCredentials
from smartserver.plugins.breezy.terminal import ServerProgress
from smartserver.plugins.breezy.tracer import flags_of, tracing_of
from smartserver.trace.tracing import PARENT

if TYPE_CHECKING:
    from smartserver.client.places import Place

AGENT = f"brz smartserver/{smartserver.__version__}"

FAST_OPEN = Option(
    "hpss.fast_open",
    default=False,
    from_unicode=bool_from_store,
    override_from_env=["SMARTSERVER_FAST_OPEN"],
    help="Let the first request to an hpss:// server travel with the handshake (TCP Fast Open).",
)
SSH = Option(
    "hpss.ssh",
    default="",
    override_from_env=["SMARTSERVER_SSH"],
    help="The program that logs in at the server of an hpss+ssh:// URL, with OpenSSH's options; default: the path in "
    "BRZ_SSH, else ssh.",
)
DEBUG = Option(
    "hpss.debug",
    default="",
    override_from_env=["SMARTSERVER_DEBUG"],
    help="Flags as of -D, with commas between them: hpss, hpssdetail, hpss-ban=RULE[,RULE].",
)
AGENT_WANTED = Option(
    "hpss.agent",
    default=True,
    from_unicode=bool_from_store,
    override_from_env=["SMARTSERVER_AGENT"],
    help="Take connections from the user's agent, which holds them between commands, and give them to it.",
)
option_registry.register(FAST_OPEN)
option_registry.register(AGENT_WANTED)
option_registry.register(SSH)
option_registry.register(DEBUG)


OF_TRUST = ("XDG_CONFIG_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables that say what TLS trusts."""

OF_AGENT = ("HOME", "PATH", "LANG", "LC_ALL", "LC_CTYPE", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR")
"""Variables that say where the agent is, and as whom ssh logs in, or that an agent is started with."""


def _breezys_ssh() -> str:
    """The program that BRZ_SSH gives the path of; of Breezy's names of programs there is OpenSSH's alone."""
    found: str | None = Option("BRZ_SSH", override_from_env=["BRZ_SSH"]).get_override()
    return found if found and "/" in found else "ssh"


class Server:
    """The connection and the cache that all transports of one server share."""

    def __init__(self, location: Place) -> None:
        self.location = location
        options = GlobalStack()
        fast_open = bool(options.get(FAST_OPEN.name)) and isinstance(location, Location)
        ssh: str = options.get(SSH.name) or _breezys_ssh()
        debug: str = options.get(DEBUG.name)
        flags = flags_of(debug)

        environment = _environment(*OF_AGENT, *OF_TRUST, *of_buckets())
        login = login_of(location, environment, lambda: [ssh])
        holder = holder_for(location, login, environment) if options.get(AGENT_WANTED.name) else None

        def connected() -> Medium:
            return connect(location, login, fast_open=fast_open, flags=flags.told(), lends=holder is not None)

        tracing = tracing_of(served_by(location), flags, behind(location), _environment(PARENT))
        given = _environment(TOKEN_VARIABLE).get(TOKEN_VARIABLE, "")
        self.client = Client(
            connected,
            tracing.observers,
            agent=AGENT,
            progress=ServerProgress(),
            above=location.above,
            holder=holder,
            credentials=credentials_for(location, cache_folder(), given, BreezyCredentials),
            traceparent=tracing.traceparent,
        )
        breezy.get_global_state().exit_stack.callback(self._leave)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self.client.close()

    def _leave(self) -> None:
        """Close it as the command ends: an interrupt comes too late to end anything else."""
        with contextlib.suppress(KeyboardInterrupt):
            self.close()


_servers: dict[str, Server] = {}


def server_of(location: Place) -> Server:
    """The one this process talks to; Breezy opens a transport anew for each URL of a command."""
    root = served_by(location)
    if root not in _servers:
        _servers[root] = Server(location)
    return _servers[root]


def cache_folder() -> str | None:
    """The folder of the cache of answers, which git's users have as well; None without a home.

    Not beside what `bedding.cache_dir` names: that makes a folder, in the current one where XDG_CACHE_HOME is no place.
    """
    return knowledge.cache_folder(_environment("XDG_CACHE_HOME", "HOME"))


def _environment(*names: str) -> dict[str, str]:
    """The environment variables that are set."""
    found = {name: Option(name, override_from_env=[name]).get_override() for name in names}
    return {name: value for name, value in found.items() if value is not None}
