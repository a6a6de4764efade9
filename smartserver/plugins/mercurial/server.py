"""`Server`: a command's only connection to a server. It is closed when the command ends, even in Mercurial's command
server."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import smartserver
from smartserver.client.places import behind, served_by
from smartserver.client.plain import plain
from smartserver.client.session import Tool, open_client
from smartserver.plugins.mercurial.words import refusal
from smartserver.trace import flags
from smartserver.trace.tracing import Tracing

if TYPE_CHECKING:
    from smartserver.client.places import Place


def environment_of(ui: Any) -> dict[str, str]:
    """Return the variables of the user's command. A command server has other variables of its own."""
    return {os.fsdecode(name): os.fsdecode(value) for name, value in ui.environ.items()}


class Server:
    """The connection that all peers of one server share during a command."""

    def __init__(self, ui: Any, location: Place) -> None:
        environment = environment_of(ui)
        debug = os.fsdecode(ui.config(b"hpss", b"debug", b"")) or environment.get(flags.VARIABLE, "")
        self._tracing = _tracing(ui, location, debug, environment)
        self._listening = self._tracing.listening()
        self._listening.__enter__()
        tool = Tool(f"hg smartserver/{smartserver.__version__}", functools.partial(_ssh, ui), _source(ui))
        self.client = open_client(location, tool, environment, self._tracing, flags.read([debug]).told())

    def close(self) -> None:
        """Close the connection, or pass it to the agent for later commands."""
        with contextlib.suppress(KeyboardInterrupt):
            self.client.close()
        self._listening.__exit__(None, None, None)
        if self._tracing.recorder is not None and self._tracing.recorder.calls:
            self._tracing.close()
        else:
            self._tracing.end()


def _source(ui: Any) -> Any:
    from smartserver.plugins.mercurial.credentials import source_of

    return source_of(ui)


def _ssh(ui: Any) -> list[str]:
    """Return the command, as words, by which hg logs in to other machines."""
    from smartserver.client.ssh_url import of_shell

    return of_shell(os.fsdecode(ui.config(b"ui", b"ssh") or b"ssh"))


_servers: dict[str, Server] = {}


def server_of(ui: Any, location: Place) -> Server:
    """Return the server of a place. There is one object for the whole command."""
    root = served_by(location)
    server = _servers.get(root)
    if server is None:
        server = _servers[root] = Server(ui, location)
        ui.atexit(functools.partial(_leave, root))
    return server


def _leave(root: str) -> None:
    server = _servers.pop(root, None)
    if server is not None:
        server.close()


def _tracing(ui: Any, location: Place, debug: str, environment: Mapping[str, str]) -> Tracing:
    """Return the tracer that `hpss.debug` or SMARTSERVER_DEBUG switches on."""

    def say(lines: str) -> None:
        for line in lines.splitlines():
            ui.warn(plain(line).encode() + b"\n")

    try:
        given = flags.read([debug])
        given.check(f"{flags.VARIABLE} or hpss.debug")
        return Tracing(given, say, "hg", environment, behind(location), is_host=True)
    except flags.BadFlag as cause:
        raise refusal(str(cause)) from None
