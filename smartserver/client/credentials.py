"""Tokens on the client's side: when one is sent, where it comes from, and which servers want one.

A token goes where nobody on the way can read it: over TLS, and to this machine. It goes only to a server that asked for
one. That it did is remembered in the user's cache, so that the next command sends its token with its first request.

A tool may keep passwords for other servers in the same place. Nothing is sent that does not begin as a token does.
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
"""The variable of the environment that has a token, and names the server that it is for: HOST[:PORT]=TOKEN. Else a
repository could have it sent to a server of its choice, by the URL of a submodule."""


def token_in(password: str) -> str:
    """A password if it is a token, else nothing."""
    return password if password.startswith(TOKEN_PREFIX) and password.isascii() else ""


class NoToken(Exception):
    """There is no token to send, and what to do about it."""


class Credentials(Protocol):
    """The user's token for one server."""

    def token(self) -> str:
        """The one to send before the server asks; empty where none is known, or it may not be sent."""

    def ask(self) -> str:
        """One to send after the server refused a request without a valid one; the user may be asked.

        Raises:
            NoToken: there is none.
        """

    def approve(self) -> None:
        """The server took what `ask` gave."""

    def reject(self) -> None:
        """The server refused the last one."""


class TokenSource(Protocol):
    """The place where the user of a tool keeps passwords."""

    def stored(self) -> str:
        """The token that is kept there for the scheme and the server; empty where that would be asked of the user, or
        there is none. A password for another scheme, or that is no token, is none."""

    def ask(self) -> str:
        """The same, and the user is asked if there is none; empty where he gives none."""

    def approve(self) -> None:
        """The last token is valid: keep it."""

    def reject(self) -> None:
        """The last token is not valid: forget it."""


SourceOf = Callable[[str, str], TokenSource]
"""Makes a source for a scheme, and a host with its port."""


class ServerCredentials:
    """The token for a server over TCP: the one in the environment, or else from a source."""

    def __init__(self, place: Place, folder: str | None, given: str, source: SourceOf | None) -> None:
        """`folder`: as of `Knowledge`. `given`: what is in the environment."""
        self._place = place
        self._given = _token_for(place, given)
        self._names_another = bool(given) and not self._given
        self._is_refused = False
        """True if the server refused that one."""
        self._source_of = source
        self._source: TokenSource | None = None
        self._private = is_private(served_by(place))
        name = hashlib.blake2b(served_by(place).encode(), digest_size=16).hexdigest()
        self._mark = os.path.join(os.path.dirname(folder), "tokens", name) if folder else None
        """The file that says that the server wants one."""

    def token(self) -> str:
        """The token that is sent to a server which asked for one before."""
        if not self._private or self._mark is None or not os.path.exists(self._mark):
            return ""
        source = self._opened()
        return token_in(self._given or (source.stored() if source is not None else ""))

    def ask(self) -> str:
        """One for a server that asks.

        Raises:
            NoToken: there is none, or others could read it.
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
        """Remember that the server wants one, and have it kept."""
        if self._mark is not None:
            with contextlib.suppress(OSError):  # Without it the next command makes one round trip more.
                os.makedirs(os.path.dirname(self._mark), mode=0o700, exist_ok=True)
                with open(self._mark, "w", encoding="utf-8") as file:
                    file.write(f"{served_by(self._place)}\n")
        if self._source is not None and not self._given:
            self._source.approve()

    def reject(self) -> None:
        """Send none unasked from now on, and have it forgotten."""
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
    """The user's token for the server of a place, as `ServerCredentials`; None where tokens say nothing."""
    over_tcp = served_by(place).startswith((f"{PLAIN}://", f"{TLS}://"))
    return ServerCredentials(place, folder, given, source) if over_tcp else None


def is_private(url: str) -> bool:
    """True if nobody on the way to the server of a URL can read what is sent: it has TLS, or is this machine."""
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0].rpartition(":")[0].strip("[]")
    return scheme == TLS or host in ("localhost", "::1") or _is_loopback(host)


def _is_loopback(host: str) -> bool:
    """True for an address of 127.0.0.0/8. `ipaddress` would tell, for 4 ms of each command's start."""
    parts = host.split(".")
    numbers = [int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 4]
    return len(parts) == len(numbers) == 4 and numbers[0] == 127 and max(numbers) < 256


def _token_for(place: Place, given: str) -> str:
    """The token of the environment, if it is for the server of a place."""
    server, _, token = given.strip().rpartition("=")
    host, _, port = place.where.lower().rpartition(":")
    names = (f"{host}:{port}", host) if port == str(DEFAULT_PORT) else (f"{host}:{port}",)
    return token if server.lower() in names else ""
