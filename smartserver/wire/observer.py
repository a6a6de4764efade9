"""The interface of observers of a connection: tracers, counters, bans, tests. The core calls them and ignores their
results. An error in `sent` ends the call of the core: nothing of the event was sent, and the connection is unusable.
"""

from __future__ import annotations

from typing import Protocol

from smartserver.wire.events import Event


class Observer(Protocol):
    """Receives every event in order, with the number of its bytes on the wire.

    The sizes of one direction add up to its bytes exactly: the opening line and skipped frames count with the event
    after them. An observer also receives a CANCEL that crossed the final answer, which `next_event` skips.
    """

    def connecting(self) -> None:
        """Note that a connection will be opened. The code that opens the connection calls this method, not the
        core."""

    def sent(self, event: Event, size: int) -> None:
        """Note that `event` was encoded as `size` bytes, which will be written."""

    def received(self, event: Event, size: int) -> None:
        """Note that `event` was decoded from `size` bytes of the peer."""
