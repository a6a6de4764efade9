"""The interface of every network of netem, whatever carries its bytes; `tests/conformance` holds each to it.

How a connection is opened differs (a stream of the simulator, a port of the proxy, a socket of a namespace), so that is
not here.
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from netem.counter import Counts
from netem.link import Link


class Network(Protocol):
    """Connections over one link, counted together; a context manager that closes it."""

    @property
    def link(self) -> Link:
        """The link that it has now."""

    def change(self, link: Link) -> None:
        """Make it another link from now on, for open connections too.

        Raises:
            ValueError: an effect of it has no meaning here; the link stays as it was.
        """

    def take(self) -> Counts:
        """The counts since the last `take` (or the start); a new operation begins."""

    def counts(self) -> Counts:
        """Return the counts so far, and go on counting."""

    def close(self) -> None:
        """End what it runs. Twice is nothing."""

    def __enter__(self) -> Self:
        """Start it."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close it."""
