"""Gets the user's token from Mercurial's section `[auth]`, or by asking the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from smartserver.client.credentials import TokenSource, token_in


class MercurialCredentials:
    """Gets the token for one server. The section `[auth]` is read and never written."""

    def __init__(self, ui: Any, scheme: str, where: str) -> None:
        """`where`: the host and port of the server."""
        self._ui = ui
        self._scheme, self._where = scheme.encode(), where.encode()
        self._found = ""
        """The last token that was returned."""
        self._refused = ""
        """The token that the server refused."""

    def stored(self) -> str:
        """Return the token in the group of `[auth]` that names the scheme and has the longest matching prefix. A group
        without a scheme is for https, as in Mercurial."""
        groups: dict[bytes, dict[bytes, bytes]] = {}
        for name, value in self._ui.configitems(b"auth"):
            group, dot, key = name.rpartition(b".")
            if dot:
                groups.setdefault(group, {})[key] = value
        best = b""
        found = b""
        for group in groups.values():
            prefix = group.get(b"prefix", b"")
            scheme, separator, place = prefix.rpartition(b"://")
            schemes = [scheme] if separator else group.get(b"schemes", b"").split()
            host = place.split(b"/", 1)[0]
            fits = host in (b"*", self._where, self._where.rpartition(b":")[0])
            if fits and self._scheme in schemes and len(place) >= len(best):
                best, found = place, group.get(b"password", b"")
        kept = token_in(found.decode("utf-8", "replace"))
        self._found = "" if kept == self._refused else kept
        return self._found

    def ask(self) -> str:
        """Return the stored token, or ask the user for one."""
        if not self.stored() and self._ui.interactive():
            prompt = b"token for %s://%s: " % (self._scheme, self._where)
            self._found = (self._ui.getpass(prompt, default=b"") or b"").decode("utf-8", "replace")
        return self._found

    def approve(self) -> None:
        """Do nothing, because only the user writes the section."""

    def reject(self) -> None:
        """Record that the server refused the last token, so that it is not returned again."""
        self._refused = self._found


def source_of(ui: Any) -> Callable[[str, str], TokenSource]:
    """Return a function that creates the credentials of a server, from its scheme and host."""
    return lambda scheme, where: MercurialCredentials(ui, scheme, where)
