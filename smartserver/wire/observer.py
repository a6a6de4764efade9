"""The hook for whoever watches a connection: tracers, counters, bans, tests. The core calls it and nothing comes back,
but that what is raised in `sent` ends the call: nothing of it has left, and the connection is good for nothing more.
"""

from __future__ import annotations

from typing import Protocol

from smartserver.wire.events import Event


class Observer(Protocol):
    """Sees every event in order, each with its bytes on the wire.

    The sizes of one direction add up to its bytes exactly: the opening line and frames that are skipped count with
    the event after them. A CANCEL that crossed the final answer is seen here although `next_event` skips it.
    """

    def connecting(self) -> None:
        """A connection is going to be opened; whoever opens it says so."""

    def sent(self, event: Event, size: int) -> None:
        """`event` was turned into `size` bytes for the peer, which are going to be written."""

    def received(self, event: Event, size: int) -> None:
        """`event` was read from the peer out of `size` bytes."""
