"""Serving one connection on standard input and output: under sshd, inetd, or a parent process."""

from __future__ import annotations

from twisted.internet import stdio

from smartserver.server.access import invoking_user
from smartserver.server.shell import SessionProtocol, Sessions


def serve(sessions: Sessions, user: str) -> SessionProtocol:
    """Begin the one session."""
    session = SessionProtocol(sessions, invoking_user(user), f"{user} on standard input")
    stdio.StandardIO(session)  # type: ignore[no-untyped-call]  # Twisted leaves it untyped.
    return session
