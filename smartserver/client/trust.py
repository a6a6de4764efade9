"""How a server's certificate is checked: by its fingerprint where the user confirmed that once (`smartserver trust`),
else by a file of authorities that the URL names, else by those that the system trusts.

Fingerprints are in a file of the user's, a line a server: `example.org:4155 SHA256:...`, as ssh's known_hosts has keys.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from smartserver.client.tls_url import TlsLocation


class Trust(NamedTuple):
    """What a certificate is checked by: one of both, or neither."""

    fingerprint: str = ""
    ca: str = ""
    """The path of a file of authorities."""


def known_servers(environment: Mapping[str, str]) -> str:
    """The path of the file; empty where the user has no home."""
    base = environment.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        home = environment.get("HOME")
        if not home:
            return ""
        base = os.path.join(home, ".config")
    return os.path.join(base, "smartserver", "known_servers")


def fingerprint_known(where: str, environment: Mapping[str, str]) -> str:
    """The fingerprint that the user confirmed of a server (HOST:PORT); empty: none.

    Raises:
        OSError: the file is there and cannot be read.
    """
    return _read(known_servers(environment)).get(where.lower(), "")


def trust_of(place: TlsLocation, environment: Mapping[str, str]) -> Trust:
    """What the certificate of a place is checked by.

    Raises:
        OSError: as `fingerprint_known`.
    """
    return Trust(ca=place.ca) if place.ca else Trust(fingerprint_known(place.where, environment))


def trust(where: str, fingerprint: str, environment: Mapping[str, str]) -> str:
    """Remember a fingerprint of a server, or (empty) forget it: the path of the file.

    Raises:
        OSError: it cannot be written, or the user has no home.
    """
    path = known_servers(environment)
    if not path:
        raise FileNotFoundError("there is no HOME to keep it in")
    found = _read(path)
    found.pop(where.lower(), None)
    if fingerprint:
        found[where.lower()] = fingerprint
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    part = f"{path}.{os.getpid()}"
    with open(part, "w", encoding="utf-8") as file:
        file.writelines(f"{name} {value}\n" for name, value in found.items())
    os.replace(part, path)
    return path


def _read(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file]
    except FileNotFoundError:
        return {}
    return {words[0]: words[1] for words in lines if len(words) == 2}
