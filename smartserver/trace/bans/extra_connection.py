"""`extra-connection`: a second connection is opened although the first could be used."""

from __future__ import annotations

from typing import ClassVar

from smartserver.trace.bans.model import Ban, Cost, Finding, WatchedAnswer, WatchedRequest


class ExtraConnection(Ban):
    """A second connection in one operation, although the first could have carried the request.

    Seen: the connections of one client, and the outcome of the last request on each. A new connection counts if all
    requests on the previous one were answered, bodies included, and its server did not refuse further requests. A
    single one counts: requests are sent one after the other, and each connection costs a round trip, over SSH seven. A
    new connection after one that broke off does not count. The connections of two clients are not compared.
    """

    name: ClassVar[str] = "extra-connection"
    remedy: ClassVar[str] = "Send the request on the connection that is open."

    def __init__(self) -> None:
        self._is_good = False
        """True if the previous connection has answered all its requests."""
        self._is_new = False
        self._is_ending = False
        """True if the server accepts no more requests on the connection."""

    def begin(self) -> None:
        """Forget the connections of the previous operation."""
        self._is_good = False

    def connecting(self) -> None:
        """Do nothing, because only the next request shows whether the connection was needed."""
        self._is_new, self._is_ending = True, False

    def asking(self, asked: WatchedRequest) -> Finding | None:
        """Return a finding if a request is sent on a needless connection."""
        needless = self._is_new and self._is_good
        self._is_new = self._is_good = False
        why = "the connection before was good"
        return Finding(asked.calls[0][0].name, why, Cost.CONNECTION) if needless else None

    def answered(self, asked: WatchedRequest, answered: WatchedAnswer) -> None:
        """Record that the connection can be used again, unless a body follows."""
        self._is_good, self._is_new = not self._is_ending and not answered.body, False

    def ended(self) -> None:
        """Record that the connection can be used again after the body."""
        self._is_good = not self._is_ending

    def leaving(self) -> None:
        """Record that the server accepts no more requests on the connection."""
        self._is_ending, self._is_good = True, False
