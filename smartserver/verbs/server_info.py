"""`Server.info`: what the server is and speaks."""

from __future__ import annotations

from smartserver.verbs.declare import Arguments, Context, Effect, Result, verb


class InfoRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Nothing."""


class InfoResult(Result, frozen=True, array_like=True):
    """The release of the server and what it can do, verbs by name included."""

    version: str
    capabilities: list[str]


@verb("Server.info", effect=Effect.READ, site_wide=True)
def server_info(context: Context, request: InfoRequest) -> InfoResult:
    """Say which release this server is and which verbs it knows."""
    return InfoResult(context.server.version, list(context.server.capabilities))
