"""The limits of a server for its peers, each number with its reason. The limits of the protocol are in
`wire.limits`."""

from __future__ import annotations

from dataclasses import dataclass

from smartserver.wire.limits import STALL_TIMEOUT

MAX_CONNECTIONS = 512
"""The most connections. An idle one takes 4 KB (500 were measured). A busy one may hold 4 MiB of unchecked requests and
bodies (`server.session.BACKLOG_HIGH`), and the largest request: 6 GiB for so many connections. A push may also hold a
segment of up to `records.limits.MAX_TAKEN`, or a graph of up to `records.limits.MAX_GRAPH`; only users with the
permission to write can cause these. No limit applies to the sum over all connections."""

MAX_OF_ADDRESS = 128
"""The most connections of one address: a quarter of all, because an address may be a whole office behind a router, but
not all users."""

MAX_REFUSED = 64
"""The most connections over the limit that are refused with an error. Further ones are closed without an error."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that an administrator chooses."""

    connections: int = MAX_CONNECTIONS
    of_address: int = MAX_OF_ADDRESS
    """The most connections of one address."""
    idle: float = STALL_TIMEOUT
    """Seconds that a peer may do nothing in the middle of a request or answer."""
