"""`Server`: a command's only connection to a server, and the folder of the cache that is kept between commands."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import breezy
from breezy.config import GlobalStack, Option, bool_from_store, option_registry

import smartserver
from smartserver.client import knowledge
from smartserver.client.credentials import TOKEN_VARIABLE
from smartserver.client.places import behind, of_buckets, served_by
from smartserver.client.session import FAST_OPEN_VARIABLE, Tool, open_client
from smartserver.plugins.breezy.credentials import BreezyCredentials
from smartserver.plugins.breezy.terminal import ServerProgress
from smartserver.plugins.breezy.tracer import flags_of, tracing_of
from smartserver.trace.tracing import PARENT

if TYPE_CHECKING:
    from smartserver.client.places import Place

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


VARIABLES = (
    "HOME", "PATH", "LANG", "LC_ALL", "LC_CTYPE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR",
    "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR", TOKEN_VARIABLE, PARENT,
)  # fmt: skip
"""The variables that decide where the agent and the cache are, as whom ssh logs in, and whom TLS trusts."""


def _breezys_ssh() -> list[str]:
    """Return the program whose path is in BRZ_SSH, else `ssh`. A name without a slash in BRZ_SSH is ignored."""
    found: str | None = Option("BRZ_SSH", override_from_env=["BRZ_SSH"]).get_override()
    return [found if found and "/" in found else "ssh"]


TOOL = Tool(f"brz smartserver/{smartserver.__version__}", _breezys_ssh, BreezyCredentials)


class Server:
    """The connection that all transports of one server share."""

    def __init__(self, location: Place) -> None:
        self.location = location
        options = GlobalStack()
        flags = flags_of(options.get(DEBUG.name))
        environment = _environment(*VARIABLES, *of_buckets())
        environment["SMARTSERVER_AGENT"] = str(int(bool(options.get(AGENT_WANTED.name))))
        environment[FAST_OPEN_VARIABLE] = str(int(bool(options.get(FAST_OPEN.name))))
        environment["SMARTSERVER_SSH"] = options.get(SSH.name)
        tracing = tracing_of(served_by(location), flags, behind(location), environment)
        self.client = open_client(location, TOOL, environment, tracing, flags.told())
        self.client.progress = ServerProgress()
        breezy.get_global_state().exit_stack.callback(self._leave)

    def close(self) -> None:
        """Close the connection. The next request opens a new one."""
        self.client.close()

    def _leave(self) -> None:
        """Close the connection as the command ends. An interrupt is ignored, because nothing else remains to be
        stopped."""
        with contextlib.suppress(KeyboardInterrupt):
            self.close()


_servers: dict[str, Server] = {}


def server_of(location: Place) -> Server:
    """Return the server of a place. There is one object for each server in a process, because Breezy opens another
    transport for each URL of a command."""
    root = served_by(location)
    if root not in _servers:
        _servers[root] = Server(location)
    return _servers[root]


def cache_folder() -> str | None:
    """Return the folder of the cache of answers, which git's adapter shares; None without a home.

    Breezy's `bedding.cache_dir` is not used: it creates a folder, even in the current one if XDG_CACHE_HOME is no path.
    """
    return knowledge.cache_folder(_environment("XDG_CACHE_HOME", "HOME"))


def _environment(*names: str) -> dict[str, str]:
    found = {name: Option(name, override_from_env=[name]).get_override() for name in names}
    return {name: value for name, value in found.items() if value is not None}
