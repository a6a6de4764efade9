"""Sends a message to the URL of a hook, with a time limit for all of it: a receiver that answers byte by byte holds a
thread no longer than one that sends nothing. Only the lookup of its addresses has another limit: that of the system's
resolver.

Only the status of the answer counts. Redirects are not followed: the access file alone names the receivers.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

SIGNATURE: Final = "X-Smartserver-Signature"
"""The header with the HMAC of the body, `sha256=` and hex digits."""


class ReceiverFailed(Exception):
    """A receiver did not accept a message; the text gives the reason."""


def post(url: str, body: bytes, secret: str, time_limit: float) -> None:
    """POST a message. `secret`: the key of its signature; if it is empty, the message is not signed.

    Raises:
        ReceiverFailed: no answer with a status of 200 to 299 was received within `time_limit` seconds.
    """
    headers = {"Content-Type": "application/json", "User-Agent": "smartserver"}
    if secret:
        headers[SIGNATURE] = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    late, expired = f"it did not answer within {time_limit:g} s", threading.Event()
    try:
        status = _exchange(url, body, headers, time.monotonic() + time_limit, expired)
    except (OSError, HTTPException, ValueError) as error:
        if expired.is_set() or isinstance(error, TimeoutError):
            why = late
        elif isinstance(error, OSError):  # Some HTTPExceptions are one, too.
            why = error.strerror or str(error)
        else:
            why = f"it answered no HTTP: {error!r}" if isinstance(error, HTTPException) else f"{url!r}: {error}"
        raise ReceiverFailed(why) from error
    if expired.is_set():  # Headers that are cut off count as whole.
        raise ReceiverFailed(late)
    if not 200 <= status < 300:
        raise ReceiverFailed(f"it answered with status {status}")


def _exchange(url: str, body: bytes, headers: Mapping[str, str], deadline: float, expired: threading.Event) -> int:
    """Send a request and return the status of the answer. `expired`: set when the connection is ended at the
    deadline."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    context = ssl.create_default_context() if parts.scheme == "https" else None
    connection = HTTPConnection(host, parts.port) if context is None else HTTPSConnection(host, parts.port)

    def end(copy: socket.socket) -> None:
        expired.set()
        with contextlib.suppress(OSError):  # The peer was first.
            copy.shutdown(socket.SHUT_RDWR)

    with contextlib.ExitStack() as until:
        opened = until.enter_context(_connected(host, connection.port, deadline))
        # TLS takes the socket over. Shutting down a copy of it ends every wait for either.
        clock = threading.Timer(deadline - time.monotonic(), end, [until.enter_context(opened.dup())])
        clock.daemon = True
        until.callback(clock.cancel)
        clock.start()
        if context is not None:
            wrapped = context.wrap_socket(opened, server_hostname=host, do_handshake_on_connect=False)
            opened = until.enter_context(wrapped)
            wrapped.do_handshake()
        connection.sock = opened
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, body, dict(headers))
        with connection.getresponse() as answer:
            return answer.status


def _connected(host: str, port: int, deadline: float) -> socket.socket:
    """Connect to the first address of a host that answers. The time that is left is divided among the addresses."""
    last = OSError("the name has no address")
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for number, (family, kind, protocol, _, place) in enumerate(addresses):
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(max((deadline - time.monotonic()) / (len(addresses) - number), 0.001))
            made.connect(place)
        except OSError as error:
            made.close()
            last = error
        else:
            made.settimeout(None)  # The timer of `_exchange` ends it.
            return made
    raise last
