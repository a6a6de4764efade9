"""`hpss://host[:port]/path`: where a repository is."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

PLAIN, TLS = "hpss", "hpss+tls"
"""The schemes of servers over TCP."""

TOKEN_PREFIX = "hpss_"
"""The prefix of every token that a server makes (`smartserver token`)."""

DEFAULT_PORT = 4155
"""The port of an older protocol: a server of that is told by its first bytes (`wire.frames`)."""


ZONE = re.compile("%25(?=.)")
"""The mark before the zone of an IPv6 address in a URL (RFC 6874). Systems, and many programs, have % there."""


class BadUrl(ValueError):
    """A URL that names no repository, and why; passwords in it are not shown."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(f"{_hidden(url)!r} is not a URL of a repository: {without_secrets(why)}")
        self.why = why


_SECRETS = (
    (r"""(://[^/:@\['"]*):(?!\d*(?:[/?'"]|$))(?:[^/]*@|[^@]*@)""", r"\1:***@"),  # A password may have a slash.
    (r"""([?&](?!ca=|host-key=)[^=&]*=)[^&'"]*""", r"\1***"),  # Somebody may take a query for a place for tokens.
    (rf"\b{TOKEN_PREFIX}[\w-]{{16,}}", f"{TOKEN_PREFIX}***"),
)
"""The parts of a URL that are not shown, and the text that is shown instead."""


def without_secrets(text: str) -> str:
    """A text with `***` for the passwords of the URLs in it, and for tokens wherever they are."""
    return re.sub(rf"\w://\S*|{TOKEN_PREFIX}\S*", lambda found: _hidden(found[0]), text)


def _hidden(url: str) -> str:
    """The same for one URL, which may have blanks in it."""
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
    """The user's name for the folder that is served (`errors.known_as`): the path of the URL begins there."""

    query: ClassVar[str] = ""
    """Options about the machine: none."""

    @property
    def key(self) -> str:
        """The one spelling under which knowledge of the remote is kept."""
        return f"hpss://{self.where.lower()}/{self.path}"

    @property
    def where(self) -> str:
        """The server, as messages name it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(url: str, scheme: str = "hpss") -> TcpLocation:
    """Read a URL of this scheme.

    Raises:
        BadUrl: it has no host, a port that is no port, or a host or path that is not UTF-8.
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
    if any("\ud800" <= character <= "\udfff" for character in host):  # As Python has bytes that are not UTF-8.
        raise BadUrl(url, "its host is not UTF-8")
    if " " in host or not host.isprintable():  # It becomes a word of a line in files and for programs.
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
    """RFC 3986, 2.1; urllib.parse would do it, for 8 ms of each command's start.

    Raises:
        UnicodeError: it is not UTF-8.
        ValueError: a % is not followed by two hexadecimal digits.
    """
    first, *rest = text.encode().split(b"%")
    if any(len(part) < 2 or not part[:2].isalnum() for part in rest):  # `fromhex` takes blanks
        raise ValueError(text)
    return (first + b"".join(bytes.fromhex(part[:2].decode()) + part[2:] for part in rest)).decode()
