"""`hpss+tls://host[:port]/path[?ca=FILE]`: a repository on a server, over TLS. Its port is that of hpss://."""

from __future__ import annotations

import os
from typing import NamedTuple

from smartserver.client.url import TLS, BadUrl, TcpLocation, parse

CA = "ca="
"""The option in the query: the file with the certificate of the authority that the server's must come from."""


class TlsLocation(NamedTuple):
    """The place of a repository; `ca` empty: the system's authorities. `path` is decoded, without a slash at either
    end."""

    host: str
    port: int
    path: str
    ca: str

    @property
    def above(self) -> str:
        """The user's name for the folder that is served (`errors.known_as`): the path of the URL begins there."""
        return ""

    @property
    def query(self) -> str:
        """With its `?`: what is said of the machine besides."""
        return f"?{CA}{self.ca}" if self.ca else ""

    @property
    def key(self) -> str:
        """The one spelling under which knowledge of the remote is kept."""
        return f"{TLS}://{self.where.lower()}/{self.path}"

    @property
    def where(self) -> str:
        """The server, as messages name it."""
        return TcpLocation(self.host, self.port, "").where


def parse_tls(url: str) -> TlsLocation:
    """Read a URL.

    Raises:
        BadUrl: as `url.parse`, or its query is not `ca=` and the full path of a file.
    """
    whole, mark, said = url.partition("?")
    if mark and not (said.startswith(CA) and os.path.isabs(said.removeprefix(CA))):
        raise BadUrl(url, f"its query is not {CA}/PATH/OF/A/FILE; in a path write ? as %3F")
    found = parse(whole, TLS)
    return TlsLocation(found.host, found.port, found.path, said.removeprefix(CA))
