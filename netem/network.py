"""The interface that every network of netem has; `tests/conformance` checks each network against it.

Opening a connection is not part of it, because that differs: a stream of the simulator, a port of the proxy, a socket
of a namespace.
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from netem.counter import Counts
from netem.link import Link


class Network(Protocol):
    """Connections over one link, counted together. Used as a context manager, the network is closed at the end."""

    @property
    def link(self) -> Link:
        """The current link."""

    def change(self, link: Link) -> None:
        """Replace the link from now on, for open connections too.

        Raises:
            ValueError: this network does not support an effect of `link`; the old link stays.
        """

    def take(self) -> Counts:
        """Return the counts since the last `take` or the start, and begin a new operation."""

    def counts(self) -> Counts:
        """Return the counts so far without resetting them."""

    def close(self) -> None:
        """End the network's threads and processes. Closing twice is harmless."""

    def __enter__(self) -> Self:
        """Start the network."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the network."""
