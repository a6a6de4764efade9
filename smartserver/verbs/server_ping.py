"""`Server.ping`: is anybody there."""

from __future__ import annotations

from smartserver.verbs.declare import Arguments, Context, Effect, Result, verb


class PingRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Nothing."""


class PingResult(Result, frozen=True, array_like=True):
    """Nothing: the counters of the reply say what the server spent."""


@verb("Server.ping", effect=Effect.READ, site_wide=True)
def server_ping(context: Context, request: PingRequest) -> PingResult:
    """Answer at once, touching no repository."""
    return PingResult()
