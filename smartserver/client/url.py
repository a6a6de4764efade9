"""`hpss://host[:port]/path`: the URL of a repository."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

PLAIN, TLS = "hpss", "hpss+tls"
"""The schemes of servers over TCP."""

TOKEN_PREFIX = "hpss_"
"""The prefix of every token that a server creates (`smartserver token`)."""

DEFAULT_PORT = 4155
"""The default port, which an older protocol uses, too. A server of that protocol is recognized by its first bytes
(`wire.frames`)."""


ZONE = re.compile("%25(?=.)")
"""The mark before the zone of an IPv6 address in a URL (RFC 6874). Systems, and many programs, use % instead."""


class BadUrl(ValueError):
    """The URL names no repository. The message gives the reason, without passwords; `why` is the reason alone."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(f"{_hidden(url)!r} is not a URL of a repository: {without_secrets(why)}")
        self.why = why


_SECRETS = (
    (r"""(://[^/:@\['"]*):(?!\d*(?:[/?'"]|$))(?:[^/]*@|[^@]*@)""", r"\1:***@"),  # A password may have a slash.
    (r"""([?&](?!ca=|host-key=)[^=&]*=)[^&'"]*""", r"\1***"),  # Users may put a token into a query.
    (rf"\b{TOKEN_PREFIX}[\w-]{{16,}}", f"{TOKEN_PREFIX}***"),
)
"""Patterns for the parts of a URL that are hidden, and their replacements."""


def without_secrets(text: str) -> str:
    """Return a text with `***` for the passwords of URLs in it, and for tokens anywhere in it."""
    return re.sub(rf"\w://\S*|{TOKEN_PREFIX}\S*", lambda found: _hidden(found[0]), text)


def _hidden(url: str) -> str:
    """Hide the secrets of one URL, which may contain blanks."""
    scheme, between, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    login, at, host = authority.rpartition("@")
    user, colon, _ = login.partition(":")
    if colon:
        url = f"{scheme}{between}{user}:***{at}{host}{slash}{path}"
    for secret, shown in _SECRETS:
        url = re.sub(secret, shown, url)
    return url


class TcpLocation(msgspec.Struct, frozen=True):
    """The place of a repository; `path` is decoded, without a slash at either end."""

    host: str
    port: int
    path: str

    above: ClassVar[str] = ""
    """The user's name for the served folder (`errors.known_as`); empty, since the path of the URL begins there."""

    query: ClassVar[str] = ""
    """The query of the URL about the machine; always empty."""

    @property
    def key(self) -> str:
        """The canonical URL, under which the knowledge of the remote is stored."""
        return f"hpss://{self.where.lower()}/{self.path}"

    @property
    def where(self) -> str:
        """The name of the server in messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(url: str, scheme: str = "hpss") -> TcpLocation:
    """Parse a URL of this scheme.

    Raises:
        BadUrl: the URL has another scheme, a user, a query or a fragment, or its host, port or path is invalid.
    """
    its, colon, rest = url.partition("://")
    if not colon or its.lower() != scheme:
        raise BadUrl(url, f"it does not begin with {scheme}://")
    authority, _, path = rest.partition("/")
    if "@" in authority:
        raise BadUrl(url, f"a user or password has no meaning for plain {scheme}")
    if authority.startswith("["):
        host, bracket, tail = authority[1:].partition("]")
        host = ZONE.sub("%", host, count=1)
        if not bracket or (tail and not tail.startswith(":")):
            raise BadUrl(url, "its IPv6 address has no closing bracket")
        port_text = tail[1:]
    else:
        host, _, port_text = authority.partition(":")
    if not host:
        raise BadUrl(url, "it has no host")
    if any("\ud800" <= character <= "\udfff" for character in host):  # Python's form of bytes that are not UTF-8.
        raise BadUrl(url, "its host is not UTF-8")
    if " " in host or not host.isprintable():  # It must be a single word in files and for programs.
        raise BadUrl(url, "its host has a blank or a control character")
    if port_text and not (
        port_text.isascii() and port_text.isdigit() and len(port_text) < 6 and 0 < int(port_text) < 65536
    ):
        raise BadUrl(url, f"{port_text!r} is not a port of 1 to 65535")
    if "?" in path or "#" in path:
        raise BadUrl(url, "a query or fragment has no meaning; write ? as %3F and # as %23")
    try:
        decoded = percent_decode(path)
    except UnicodeError:
        raise BadUrl(url, "its path is not UTF-8") from None
    except ValueError:
        raise BadUrl(url, "a % in its path is not followed by two hexadecimal digits") from None
    return TcpLocation(host, int(port_text) if port_text else DEFAULT_PORT, decoded.strip("/"))


def percent_decode(text: str) -> str:
    """Decode percent-encoding (RFC 3986, 2.1). Importing urllib.parse for it would add 8 ms to each command's start.

    Raises:
        UnicodeError: the result is not UTF-8.
        ValueError: a % is not followed by two hexadecimal digits.
    """
    first, *rest = text.encode().split(b"%")
    if any(len(part) < 2 or not part[:2].isalnum() for part in rest):  # `fromhex` takes blanks
        raise ValueError(text)
    return (first + b"".join(bytes.fromhex(part[:2].decode()) + part[2:] for part in rest)).decode()
