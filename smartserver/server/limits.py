"""The limits of a server for its peers, each number with its source; those of the protocol are in `wire.limits`."""

from __future__ import annotations

from dataclasses import dataclass

from smartserver.wire.limits import STALL_TIMEOUT

MAX_CONNECTIONS = 512
"""A connection costs 4 KB while nothing is asked on it (500 were measured), and requests and bodies that wait to be
looked at 4 MiB and the largest request (`server.session.BACKLOG_HIGH`): 6 GiB for as many as this. There is no bound
over all of them, nor on what a push holds besides: the segment that is on its way, of up to `records.limits.MAX_TAKEN`,
or its graph, of up to `records.limits.MAX_GRAPH`. Only who may write can have those."""

MAX_OF_ADDRESS = 128
"""A quarter of all: one address is a whole office behind a router, but not everybody."""

MAX_REFUSED = 64
"""Connections over the limit that are told so; further ones are closed without a word."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that an administrator chooses."""

    connections: int = MAX_CONNECTIONS
    of_address: int = MAX_OF_ADDRESS
    """The most connections of one address."""
    idle: float = STALL_TIMEOUT
    """Seconds a peer in the middle of something may do nothing."""
