"""`Server.info`: get the release and the verbs of the server."""

from __future__ import annotations

from smartserver.verbs.declare import Arguments, Context, Effect, Result, verb


class InfoRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """No arguments."""


class InfoResult(Result, frozen=True, array_like=True):
    """The release of the server, and its capabilities, which are the names of its verbs."""

    version: str
    capabilities: list[str]


@verb("Server.info", effect=Effect.READ, site_wide=True)
def server_info(context: Context, request: InfoRequest) -> InfoResult:
    """Return the release of this server and the verbs that it knows."""
    return InfoResult(context.server.version, list(context.server.capabilities))
