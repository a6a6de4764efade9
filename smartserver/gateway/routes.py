"""Parses the head of a request of git's smart HTTP protocol (gitprotocol-http(5)): its path, service and token. This
module does no I/O."""

from __future__ import annotations

import base64
import binascii
import ipaddress
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec

from smartserver.gateway.git_command import Service
from smartserver.wire.messages import raw

MAX_TARGET: Final = 8 << 10
"""The most bytes of a path and query."""


class Route(NamedTuple):
    """The parsed target of a request of git."""

    path: str
    """The path of the repository, without slashes at its ends."""
    service: Service
    refs: bool
    """True for a request for the refs, False for one for the service itself."""


class NoRoute(Exception):
    """A request that is not part of git's protocol. The message gives the reason or the accepted requests, on one
    line."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


NOT_GIT: Final = "only git's smart HTTP protocol is spoken here: git clone URL; hg and brz use hpss:// URLs"


def route(method: bytes, target: bytes) -> Route:
    """Return the repository and the service of a request.

    Raises:
        NoRoute: the request is not one of git's protocol.
    """
    if len(target) > MAX_TARGET:
        raise NoRoute(414, f"expected a path of no more than {MAX_TARGET} bytes")
    whole, _, query = target.partition(b"?")
    if not whole.startswith(b"/"):
        raise NoRoute(400, "expected a path that begins with a slash")
    try:
        # Unquoted once, before it is split: an escaped slash is a slash. The store refuses invalid parts.
        path = unquote_to_bytes(whole).decode("utf-8")
    except UnicodeDecodeError:
        raise NoRoute(404, "the path is not UTF-8") from None
    if path.endswith("/info/refs"):
        if method != b"GET":
            raise NoRoute(405, "expected GET")
        service = next((each for each in Service if query == b"service=" + each.encode()), None)
        if service is None:
            raise NoRoute(403, "git's dumb HTTP protocol is not spoken here: git 1.6.6 or newer has the smart one")
        return Route(path.removesuffix("/info/refs").strip("/"), service, True)
    for service in Service:
        if path.endswith(f"/{service}"):
            if method != b"POST":
                raise NoRoute(405, "expected POST")
            return Route(path.removesuffix(f"/{service}").strip("/"), service, False)
    raise NoRoute(404, NOT_GIT)


def token_of(authorization: bytes) -> dict[str, msgspec.Raw]:
    """Return the token in HTTP basic authentication as an extra field of our requests. The token is the password, or
    the user name if the password is empty. With a password, the name is ignored, because a token belongs to a user.

    Raises:
        NoRoute: the header has another form.
    """
    if not authorization:
        return {}
    scheme, _, credentials = authorization.strip().partition(b" ")
    if scheme.lower() != b"basic":
        raise NoRoute(400, "expected `Authorization: Basic`, whose password is the token; `Bearer` is not supported")
    try:
        name, _, password = base64.b64decode(credentials.strip(), validate=True).decode("utf-8").partition(":")
    except (ValueError, binascii.Error):
        raise NoRoute(400, "expected `Authorization: Basic` with NAME:TOKEN in base64") from None
    return {"token": raw(password or name)} if password or name else {}


def client_behind(forwarded: bytes) -> str:
    """Return the client of a local proxy: the last address in `X-Forwarded-For`, which the proxy has added. Empty if
    that is no valid address."""
    last = forwarded.rpartition(b",")[2].strip().decode("latin-1")
    try:
        return str(ipaddress.ip_address(last))
    except ValueError:
        return ""
