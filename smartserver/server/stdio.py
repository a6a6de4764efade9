"""Serves one connection on standard input and output: under sshd, inetd, or a parent process."""

from __future__ import annotations

from typing import Any

from twisted.internet import error, stdio
from twisted.python.failure import Failure

from smartserver.server.access import Admission
from smartserver.server.connections import Connections
from smartserver.server.shell import SessionProtocol


class StdioProtocol(SessionProtocol):
    """A connection of two pipes, which are closed separately.

    Once the output is closed, Twisted's StandardIO never reports the end of the connection, even if the input ends.
    """

    def writeConnectionLost(self) -> None:
        """Record that the output is closed, because everything was sent or the reader has disconnected."""
        super().writeConnectionLost()
        if not self.timeouts.closing:
            self._end()

    def lose(self) -> None:
        """Close both directions once everything is sent; `connectionLost` follows."""
        super().lose()
        if self.timeouts.sent_all is not None:
            self._end()

    def abort(self) -> None:
        """Close both directions at once; `connectionLost` follows."""
        self.timeouts.closing = True
        self._end()

    def _writer(self) -> Any:
        return self._carrier._writer

    def _end(self) -> None:
        reason = Failure(error.ConnectionDone())  # type: ignore[no-untyped-call]  # Twisted leaves it untyped.
        self._carrier.connectionLost(reason)


def serve(connections: Connections, admission: Admission, peer: str) -> SessionProtocol:
    """Begin the only session. `peer`: the name of the client in the log."""
    session = StdioProtocol(connections, admission, peer)
    stdio.StandardIO(session)  # type: ignore[no-untyped-call]  # Twisted leaves it untyped.
    return session
