"""The user's token as a password of Breezy's: `authentication.conf` has it, or the user is asked."""

from __future__ import annotations

from breezy import ui
from breezy.config import AuthenticationConfig

PROMPT = "Token for %(scheme)s://%(where)s"


class BreezyCredentials:
    """The credentials that Breezy has for one server. It reads its file and never writes it."""

    def __init__(self, scheme: str, where: str) -> None:
        """`where`: the host and its port."""
        self._scheme, self._where = scheme, where
        self._found = ""
        """What was given last."""
        self._refused = ""
        """What the server did not take."""

    def stored(self) -> str:
        """The password, or the token, of the section for this server."""
        host, _, port = self._where.rpartition(":")
        found = AuthenticationConfig().get_credentials(self._scheme, host.strip("[]"), int(port)) or {}
        kept: str = found.get("password") or found.get("token") or ""
        self._found = "" if kept == self._refused else kept
        return self._found

    def ask(self) -> str:
        """The same; else the user is asked for one."""
        if not self.stored():
            try:
                given: str | None = ui.ui_factory.get_password(PROMPT, scheme=self._scheme, where=self._where)
            except NotImplementedError:  # Of a program that uses Breezy as a library, and has no user.
                given = None
            self._found = given or ""
        return self._found

    def approve(self) -> None:
        """The server took it. Whoever wants it kept writes it into the file."""

    def reject(self) -> None:
        """The server did not take it: give it no more."""
        self._refused = self._found
