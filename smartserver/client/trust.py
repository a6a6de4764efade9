"""The check of a server's certificate. The fingerprint that the user confirmed (`smartserver trust`) decides, else a
file of authorities that the URL names, else the authorities of the system. A URL never overrides a confirmed
fingerprint.

Fingerprints are in a file of the user's, one line for each server: `example.org:4155 SHA256:...`, like ssh's
known_hosts.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from smartserver.client.medium import CannotConnect
from smartserver.client.replace import new_file
from smartserver.client.url import DEFAULT_PORT

if TYPE_CHECKING:
    from smartserver.client.tls_url import TlsLocation

PREFIX = "SHA256:"
"""The prefix of a fingerprint (`wire.tls.fingerprint`)."""


class Trust(NamedTuple):
    """The trust for a certificate: a fingerprint, a file of authorities, or neither."""

    fingerprint: str = ""
    ca: str = ""
    """The path of a file of authorities."""


def known_servers(environment: Mapping[str, str]) -> str:
    """Return the path of the file of fingerprints; empty if the user has no home."""
    base = environment.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        home = environment.get("HOME")
        if not home:
            return ""
        base = os.path.join(home, ".config")
    return os.path.join(base, "smartserver", "known_servers")


def fingerprint_known(where: str, environment: Mapping[str, str]) -> str:
    """Return the fingerprint that the user confirmed for a server (HOST:PORT); empty if none was confirmed.

    Raises:
        OSError, CannotConnect: the file exists and cannot be read.
    """
    return _read(known_servers(environment)).get(where.lower(), "")


def trust_of(place: TlsLocation, environment: Mapping[str, str]) -> Trust:
    """Return the trust for the certificate of a place."""
    known = fingerprint_known(place.where, environment)
    return Trust(known) if known else Trust(ca=place.ca)  # A URL may come from a repository.


def trust(where: str, fingerprint: str, environment: Mapping[str, str]) -> str:
    """Store the fingerprint of a server; an empty fingerprint removes the server's line. Other lines are kept. Return
    the path of the file.

    Raises:
        OSError: the file cannot be written, or the user has no home.
    """
    path = known_servers(environment)
    if not path:
        raise FileNotFoundError("HOME is not set, so there is no file for certificates")
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(f"{path}.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lines = _lines(path)
        kept = [line for number, line in enumerate(lines, 1) if _server_of(path, number, line)[0] != where.lower()]
        if fingerprint:
            kept.append(f"{where.lower()} {fingerprint}")
        with new_file(path) as file:
            file.write("".join(f"{line}\n" for line in kept).encode())
    return path


def _read(path: str) -> dict[str, str]:
    return dict(_server_of(path, number, line) for number, line in enumerate(_lines(path), 1))


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def _server_of(path: str, number: int, line: str) -> tuple[str, str]:
    """Return the server and the fingerprint of a line; both are empty for a blank line or a comment."""
    words = line.split()
    if not words or words[0].startswith("#"):
        return "", ""
    _, colon, port = words[0].rpartition(":")
    if len(words) < 2 or not words[1].startswith(PREFIX) or (colon and not port.isdigit()):
        raise CannotConnect(words[0], f"{path}, line {number}: expected HOST:PORT {PREFIX}...")
    return words[0].lower() if colon else f"{words[0].lower()}:{DEFAULT_PORT}", words[1]
