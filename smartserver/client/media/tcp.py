"""TCP. One write leaves as one flight: Nagle's algorithm is off, and the kernel holds few unsent bytes."""

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
"""Seconds to connect. Linux itself gives up after about 130, and no link in use has a round trip near a minute."""

TCP_NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", 25)
TCP_FASTOPEN_CONNECT = 30
"""An option of Linux (linux/tcp.h) that Python has no name for: `connect` waits for the first write and travels with
it."""

SYN_RETRIES = 5
"""Repetitions of a handshake that travels with the first write, to which `CONNECT_TIMEOUT` does not apply: Linux gives
up after 63 or 67 s."""

WAS_MADE = (errno.ECONNRESET, errno.EPIPE)
"""The error numbers that only an established connection can have."""

SocketAddress = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
"""An address in the form of `socket.getaddrinfo`."""


class TcpMedium:
    """A TCP connection; implements `Medium`."""

    def __init__(self, host: str, port: int, *, fast_open: bool = False) -> None:
        """Connect. With `fast_open`, and if this machine has met the server before, connect only at the first write.

        That write then travels with the handshake, up to one packet of it, and may arrive twice. If nobody answers, the
        read or write that notices it sends the packet to the next address of the host.

        Raises:
            CannotConnect: the host name is unknown or invalid, nobody listens, or nothing answers.
        """
        self._where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._is_measured = False
        """True once the tracer has measured the socket, which is done only once."""
        self._others: Sequence[SocketAddress] = ()
        """The remaining addresses of the server, until one has answered."""
        self._first = b""
        """The bytes that were sent with a handshake that was not answered yet."""
        try:
            with span(Part.CONNECT, "name"):
                places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            with span(Part.CONNECT, "TCP"):
                self._socket, others = _open(places, fast_open=fast_open)
            self._others = others if fast_open else ()
        except OSError as error:
            raise CannotConnect(self._where, _why(error)) from None
        except UnicodeError:  # The message of the codec for host names (IDNA) would not help the user.
            raise CannotConnect(self._where, "it is not a valid host name") from None
        self._made = not fast_open or _is_made(self._socket)
        self._set_up()

    def _set_up(self) -> None:
        with contextlib.suppress(OSError):  # It may be reset by now; the first read reports that.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError):  # An older kernel: a refusal is then noticed a socket buffer later.
            self._socket.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOTSENT_LOWAT)
        self._socket.setblocking(False)

    def poll(self, *, read: bool, write: bool, timeout: float | None = None) -> tuple[bool, bool]:
        """Wait until a requested direction is ready; see `Medium.poll`."""
        return ready(self._socket.fileno() if read else None, self._socket.fileno() if write else None, timeout)

    def read(self, size: int) -> bytes:
        """Read at most `size` bytes, and wait for the first."""
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
        """Send as many bytes as are accepted without blocking. Return their number."""
        while True:
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                return 0
            except OSError as error:
                self._try_others(error)
            else:
                if self._first:  # The kernel takes more bytes only after the answer to the handshake.
                    self._answered()
                elif not self._made:
                    self._first = bytes(data[:sent])
                return sent

    def _answered(self) -> None:
        self._made, self._first, self._others = True, b"", ()

    def _try_others(self, error: OSError) -> None:
        """Try the next address, if the current one never answered, and send again the bytes that were sent during its
        handshake."""
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
            self._socket.sendall(first)  # At most one packet, into an empty buffer.
        except OSError as lost:
            raise ConnectionLost(_words(lost)) from None
        self._set_up()

    def detach(self) -> socket.socket:
        """Return the socket for a layer above TCP. The medium must not be used afterwards."""
        return self._socket

    def lend(self) -> Sequence[int]:
        """Return the descriptor of the socket."""
        self._measure()
        return [self._socket.fileno()]

    def _measure(self) -> None:
        if not self._is_measured:
            self._is_measured = True
            measured(self._socket)

    def close(self) -> None:
        """Close the socket in this process."""
        self._measure()
        self._socket.close()


def _open(places: Sequence[SocketAddress], *, fast_open: bool) -> tuple[socket.socket, Sequence[SocketAddress]]:
    """Connect to the first address that answers. Return the connection and the remaining addresses.

    With `fast_open` the connection may wait for its first write, if the kernel agrees. Without a cookie from the
    server, or if such packets did not get through before, this waits for the handshake as usual.
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
    """Tell whether the connection is established, and not waiting for its first write."""
    try:
        connection.getpeername()
    except OSError:
        return False
    return True


def _why(unreached: OSError) -> str:
    return f"no answer within {CONNECT_TIMEOUT:.0f} s" if isinstance(unreached, TimeoutError) else _words(unreached)


def _words(error: OSError) -> str:
    return error.strerror or str(error)
