"""`extra-connection`: another connection where the first one is good."""

from __future__ import annotations

from typing import ClassVar

from smartserver.trace.bans.model import Ban, Cost, Finding, WatchedAnswer, WatchedRequest


class ExtraConnection(Ban):
    """A second connection in one operation, where the first could have carried the request.

    Seen: the connections of one client, and what came of the last request on each. It counts when a request goes over a
    new connection although the one before has answered all that it was asked, bodies and all, and its server
    did not say that it takes no more. One is enough: requests go one after the other, and each connection costs a round
    trip, over SSH seven. One that broke off in the middle is no reproach to the next. Of the connections of two clients
    neither knows.
    """

    name: ClassVar[str] = "extra-connection"
    remedy: ClassVar[str] = "Send the request on the connection that is open."

    def __init__(self) -> None:
        self._is_good = False
        """True if there was a connection before that answered all of it."""
        self._is_new = False
        self._is_ending = False
        """True if the server said that it takes no more on it."""

    def begin(self) -> None:
        """There was none."""
        self._is_good = False

    def connecting(self) -> None:
        """Do nothing: the next request shows if the connection was needed."""
        self._is_new, self._is_ending = True, False

    def asking(self, asked: WatchedRequest) -> Finding | None:
        """On which it goes, and why."""
        needless = self._is_new and self._is_good
        self._is_new = self._is_good = False
        why = "the connection before was good"
        return Finding(asked.calls[0][0].name, why, Cost.CONNECTION) if needless else None

    def answered(self, asked: WatchedRequest, answered: WatchedAnswer) -> None:
        """The connection has answered."""
        self._is_good, self._is_new = not self._is_ending and not answered.body, False

    def ended(self) -> None:
        """So it has, now."""
        self._is_good = not self._is_ending

    def leaving(self) -> None:
        """The server takes no more there."""
        self._is_ending, self._is_good = True, False
