"""`Server.ping`: test whether the server answers."""

from __future__ import annotations

from smartserver.verbs.declare import Arguments, Context, Effect, Result, verb


class PingRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """No arguments."""


class PingResult(Result, frozen=True, array_like=True):
    """An empty result. The counters of the reply have the cost for the server."""


@verb("Server.ping", effect=Effect.READ, site_wide=True)
def server_ping(context: Context, request: PingRequest) -> PingResult:
    """Answer at once, touching no repository."""
    return PingResult()
