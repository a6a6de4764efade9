"""TCP. One write leaves as one flight: no Nagle, and little lies in the kernel unsent."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
from collections.abc import Sequence
from typing import Any

from smartserver.client.media.ready import ready
from smartserver.client.medium import CannotConnect, ConnectionLost
from smartserver.spans import Part, measured, span
from smartserver.wire.limits import NOTSENT_LOWAT

CONNECT_TIMEOUT = 60.0
"""Seconds; Linux itself gives up after about 130, and no link in use has a round trip near a minute."""

TCP_NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", 25)
TCP_FASTOPEN_CONNECT = 30
"""An option of Linux (linux/tcp.h), which Python has no name for: `connect` waits for the first write, and goes with
it."""

SYN_RETRIES = 5
"""Repetitions of a handshake that goes with the first write, where no timeout of ours is: Linux gives up after 63 s, or
67."""

WAS_MADE = (errno.ECONNRESET, errno.EPIPE)
"""Errors that only a connection has which was made."""

SocketAddress = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
"""An address in the form of `socket.getaddrinfo`."""


class TcpMedium:
    """A TCP connection; implements `Medium`."""

    def __init__(self, host: str, port: int, *, fast_open: bool = False) -> None:
        """Connect; `fast_open`: where this machine has met the server before, not until the first write.

        What is then written first travels with the handshake, up to one packet of it, and may arrive twice. Should it
        find nobody, it is sent to the next address of the name, by the read or write that hears of it.

        Raises:
            CannotConnect: the name is unknown or none, nobody listens, or nothing answers.
        """
        self._where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._is_measured = False
        """True once a tracer looked at it for the last time."""
        self._others: Sequence[SocketAddress] = ()
        """The other addresses of the server, as long as nobody has answered."""
        self._first = b""
        """The bytes that have gone with a handshake which nobody has answered."""
        try:
            with span(Part.CONNECT, "name"):
                places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            with span(Part.CONNECT, "TCP"):
                self._socket, others = _open(places, fast_open=fast_open)
            self._others = others if fast_open else ()
        except OSError as error:
            raise CannotConnect(self._where, _why(error)) from None
        except UnicodeError:  # Of the encoding of names, whose own words (IDNA) help nobody.
            raise CannotConnect(self._where, "it is not a valid host name") from None
        self._made = not fast_open or _is_made(self._socket)
        self._set_up()

    def _set_up(self) -> None:
        with contextlib.suppress(OSError):  # It may be reset by now, which the first read tells.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError):  # An older kernel: a refusal is then noticed a socket buffer later.
            self._socket.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOTSENT_LOWAT)
        self._socket.setblocking(False)

    def poll(self, *, read: bool, write: bool, timeout: float | None = None) -> tuple[bool, bool]:
        """Wait for either direction."""
        return ready(self._socket.fileno() if read else None, self._socket.fileno() if write else None, timeout)

    def read(self, size: int) -> bytes:
        """Read the next bytes, waiting for the first."""
        while True:
            try:
                got = self._socket.recv(size)
            except BlockingIOError:
                self.poll(read=True, write=False)
            except OSError as error:
                self._try_others(error)
            else:
                self._answered()
                return got

    def write_some(self, data: memoryview) -> int:
        """Send what fits."""
        while True:
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                return 0
            except OSError as error:
                self._try_others(error)
            else:
                if self._first:  # What comes after it is not taken before the answer to the handshake.
                    self._answered()
                elif not self._made:
                    self._first = bytes(data[:sent])
                return sent

    def _answered(self) -> None:
        self._made, self._first, self._others = True, b"", ()

    def _try_others(self, error: OSError) -> None:
        """Connect to another address if this one never answered, and send again what went with its handshake."""
        if self._made or error.errno in WAS_MADE:
            raise ConnectionLost(_words(error)) from None
        if not self._others:
            raise CannotConnect(self._where, _why(error)) from None
        nobody = self._socket
        try:
            self._socket, _ = _open(self._others, fast_open=False)
        except OSError as also:
            raise CannotConnect(self._where, _why(also)) from None
        nobody.close()
        first = self._first
        self._answered()
        try:
            self._socket.sendall(first)  # Of one packet, into an empty buffer.
        except OSError as lost:
            raise ConnectionLost(_words(lost)) from None
        self._set_up()

    def detach(self) -> socket.socket:
        """The socket, for a layer above TCP; this medium is of no use from then on."""
        return self._socket

    def lend(self) -> Sequence[int]:
        """The socket."""
        self._measure()
        return [self._socket.fileno()]

    def _measure(self) -> None:
        if not self._is_measured:
            self._is_measured = True
            measured(self._socket)

    def close(self) -> None:
        """Close it here."""
        self._measure()
        self._socket.close()


def _open(places: Sequence[SocketAddress], *, fast_open: bool) -> tuple[socket.socket, Sequence[SocketAddress]]:
    """A connection to the first of them that answers, and those after it; `fast_open`: it may wait for its first write.

    The kernel decides that: without a cookie of the server's, or where it has learned that the way there does not let
    such packets through, this waits for the handshake as ever.
    """
    last = OSError("the name has no address")
    for tried, (family, kind, protocol, _, place) in enumerate(places, 1):
        made = socket.socket(family, kind, protocol)
        try:
            if fast_open and sys.platform == "linux":
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, SYN_RETRIES)
                with contextlib.suppress(OSError):  # A kernel before 4.11.
                    made.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1)
            made.settimeout(CONNECT_TIMEOUT)
            made.connect(place)
        except OSError as error:
            made.close()
            last = error
        else:
            return made, places[tried:]
    raise last


def _is_made(connection: socket.socket) -> bool:
    """True if the connection is made, and not only to be made with the first write."""
    try:
        connection.getpeername()
    except OSError:
        return False
    return True


def _why(unreached: OSError) -> str:
    return f"no answer within {CONNECT_TIMEOUT:.0f} s" if isinstance(unreached, TimeoutError) else _words(unreached)


def _words(error: OSError) -> str:
    return error.strerror or str(error)
