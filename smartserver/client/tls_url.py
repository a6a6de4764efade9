"""`hpss+tls://host[:port]/path[?ca=FILE]`: a repository on a server, over TLS. Its port is that of hpss://."""

from __future__ import annotations

import os
from typing import NamedTuple

from smartserver.client.url import TLS, BadUrl, TcpLocation, parse

CA = "ca="
"""The option in the query: a file with the certificate of the authority that must have issued the server's."""


class TlsLocation(NamedTuple):
    """The place of a repository. An empty `ca` means the system's authorities. `path` is decoded, without a slash at
    either end."""

    host: str
    port: int
    path: str
    ca: str

    @property
    def above(self) -> str:
        """The user's name for the served folder (`errors.known_as`); empty, since the path of the URL begins there."""
        return ""

    @property
    def query(self) -> str:
        """The query of the URL with its `?`; empty if the URL has none."""
        return f"?{CA}{self.ca}" if self.ca else ""

    @property
    def key(self) -> str:
        """The canonical URL, under which the knowledge of the remote is stored."""
        return f"{TLS}://{self.where.lower()}/{self.path}"

    @property
    def where(self) -> str:
        """The name of the server in messages."""
        return TcpLocation(self.host, self.port, "").where


def parse_tls(url: str) -> TlsLocation:
    """Parse an hpss+tls:// URL.

    Raises:
        BadUrl: as in `url.parse`, or the query is not `ca=` and the full path of a file.
    """
    whole, mark, said = url.partition("?")
    if mark and not (said.startswith(CA) and os.path.isabs(said.removeprefix(CA))):
        raise BadUrl(url, f"its query is not {CA}/PATH/OF/A/FILE; in a path write ? as %3F")
    found = parse(whole, TLS)
    return TlsLocation(found.host, found.port, found.path, said.removeprefix(CA))
