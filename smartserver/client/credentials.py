"""The client's tokens: when a token is sent, where it comes from, and which servers require one.

A token is sent only over TLS or to this machine, so that nobody on the way can read it. It is sent only to a server
that asked for a token. The user's cache remembers that the server asked, so that the next command sends its token with
the first request.

A tool may store passwords for other servers in the same place. A password that does not begin like a token is never
sent.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from smartserver.client.places import served_by
from smartserver.client.url import DEFAULT_PORT, PLAIN, TLS, TOKEN_PREFIX

if TYPE_CHECKING:
    from smartserver.client.places import Place

TOKEN_VARIABLE = "SMARTSERVER_TOKEN"
"""The environment variable for a token, with the server that it is for: HOST[:PORT]=TOKEN. Without the server a
repository could have the token sent anywhere, by the URL of a submodule."""


def token_in(password: str) -> str:
    """Return a password if it is a token, else an empty string."""
    return password if password.startswith(TOKEN_PREFIX) and password.isascii() else ""


class NoToken(Exception):
    """There is no token to send. The message tells the user how to provide one."""


class Credentials(Protocol):
    """The user's token for one server."""

    def token(self) -> str:
        """Return the token to send before the server asks for one. Empty if no token is known, or it must not be
        sent."""

    def ask(self) -> str:
        """Return a token to send after the server refused a request without a valid one. The user may be prompted.

        Raises:
            NoToken: no token is available.
        """

    def approve(self) -> None:
        """Record that the server accepted the token from `ask`."""

    def reject(self) -> None:
        """Record that the server refused the last token."""


class TokenSource(Protocol):
    """The place where a tool stores the user's passwords."""

    def stored(self) -> str:
        """Return the token that is stored for the scheme and the server, without asking the user; else an empty string.
        A password that is no token, or for another scheme, does not count."""

    def ask(self) -> str:
        """Return the stored token, or ask the user for one; empty if the user gives none."""

    def approve(self) -> None:
        """Store the last token, because the server accepted it."""

    def reject(self) -> None:
        """Remove the last token, because the server refused it."""


SourceOf = Callable[[str, str], TokenSource]
"""A function that returns the source for a URL scheme and a `HOST:PORT`."""


class ServerCredentials:
    """The token for a server over TCP, from the environment or else from a source."""

    def __init__(self, place: Place, folder: str | None, given: str, source: SourceOf | None) -> None:
        """`folder`: the folder of `Knowledge`. `given`: the value of `TOKEN_VARIABLE`."""
        self._place = place
        self._given = _token_for(place, given)
        self._names_another = bool(given) and not self._given
        self._is_refused = False
        """True if the server refused the token from the environment."""
        self._source_of = source
        self._source: TokenSource | None = None
        self._private = is_private(served_by(place))
        name = hashlib.blake2b(served_by(place).encode(), digest_size=16).hexdigest()
        self._mark = os.path.join(os.path.dirname(folder), "tokens", name) if folder else None
        """The file that exists if the server requires a token."""

    def token(self) -> str:
        """Return the token if the server asked for one before and the connection is private, else an empty string."""
        if not self._private or self._mark is None or not os.path.exists(self._mark):
            return ""
        source = self._opened()
        return token_in(self._given or (source.stored() if source is not None else ""))

    def ask(self) -> str:
        """Return a token for a server that requires authentication.

        Raises:
            NoToken: no token is known, the token was refused, or the connection is not encrypted.
        """
        if not self._private:
            there = self._place.key.replace(PLAIN, TLS, 1)
            raise NoToken(f"a token is not sent without encryption: use {there}")
        if self._is_refused:
            raise NoToken(f"it is the one in {TOKEN_VARIABLE}")
        found, source = self._given, self._opened()
        if not found and source is not None:
            found = source.ask()
        if not token_in(found):
            how = f"set {TOKEN_VARIABLE} to {self._place.where}=TOKEN"
            if found:
                raise NoToken(f"the given password is not a token, which begins with {TOKEN_PREFIX}")
            if self._names_another:
                raise NoToken(f"{TOKEN_VARIABLE} has none for this server: {how}")
            raise NoToken(how if source is None else "no token was given")
        return found

    def approve(self) -> None:
        """Remember that the server requires a token, and let the source store it."""
        if self._mark is not None:
            with contextlib.suppress(OSError):  # Without the file the next command needs one more round trip.
                os.makedirs(os.path.dirname(self._mark), mode=0o700, exist_ok=True)
                with open(self._mark, "w", encoding="utf-8") as file:
                    file.write(f"{served_by(self._place)}\n")
        if self._source is not None and not self._given:
            self._source.approve()

    def reject(self) -> None:
        """Send no further token before the server asks for one, and let the source remove the refused token."""
        if self._mark is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._mark)
        if self._given:
            self._is_refused = True
        elif self._source is not None:
            self._source.reject()

    def _opened(self) -> TokenSource | None:
        if self._source is None and self._source_of is not None and not self._given:
            scheme, _, rest = served_by(self._place).partition("://")
            self._source = self._source_of(scheme, rest.rstrip("/"))
        return self._source


def credentials_for(
    place: Place, folder: str | None, given: str, source: SourceOf | None = None
) -> ServerCredentials | None:
    """Return the user's token for the server of a place (`ServerCredentials`), or None if the server is not reached
    over TCP."""
    over_tcp = served_by(place).startswith((f"{PLAIN}://", f"{TLS}://"))
    return ServerCredentials(place, folder, given, source) if over_tcp else None


def is_private(url: str) -> bool:
    """Tell whether data sent to the server of a URL cannot be read on the way: the URL uses TLS, or its host is this
    machine."""
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0].rpartition(":")[0].strip("[]")
    return scheme == TLS or host in ("localhost", "::1") or _is_loopback(host)


def _is_loopback(host: str) -> bool:
    """Tell whether a host is an address in 127.0.0.0/8. Importing `ipaddress` would add 4 ms to each command's
    start."""
    parts = host.split(".")
    numbers = [int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 4]
    return len(parts) == len(numbers) == 4 and numbers[0] == 127 and max(numbers) < 256


def _token_for(place: Place, given: str) -> str:
    """Return the token from the environment if it is for the server of a place, else an empty string."""
    server, _, token = given.strip().rpartition("=")
    host, _, port = place.where.lower().rpartition(":")
    names = (f"{host}:{port}", host) if port == str(DEFAULT_PORT) else (f"{host}:{port}",)
    return token if server.lower() in names else ""
