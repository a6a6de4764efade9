"""TCP. One write leaves as one flight: no Nagle, and little lies in the kernel unsent."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys

from smartserver.client.media.ready import ready
from smartserver.client.medium import CannotConnect, ConnectionLost, MediumError
from smartserver.wire.limits import NOTSENT_LOWAT

CONNECT_TIMEOUT = 60.0
"""Seconds; Linux itself gives up after about 130, and no link in use has a round trip near a minute."""

TCP_NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", 25)
TCP_FASTOPEN_CONNECT = 30
"""Of Linux (linux/tcp.h), which Python has no name for: `connect` waits for the first write, and goes with it."""


class TcpMedium:
    """A TCP connection; implements `Medium`."""

    def __init__(self, host: str, port: int, *, fast_open: bool = False) -> None:
        """Connect; `fast_open`: where this machine has met the server before, not until the first write.

        What is then written first travels with the handshake, up to one packet of it, and may arrive twice. Only the
        first address of a name is tried then, and what keeps it from being reached is told by the first read or write.

        Raises:
            CannotConnect: the name is unknown or none, nobody listens, or nothing answers.
        """
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self._socket = (_open if fast_open else socket.create_connection)((host, port), CONNECT_TIMEOUT)
        except TimeoutError:
            raise CannotConnect(where, f"no answer within {CONNECT_TIMEOUT:.0f} s") from None
        except OSError as wrong:
            raise CannotConnect(where, wrong.strerror or str(wrong)) from None
        except UnicodeError:  # Of the encoding of names, whose own words (IDNA) help nobody.
            raise CannotConnect(where, "no host can have that name") from None
        self._where = where
        with contextlib.suppress(OSError):  # It may be reset by now, which the first read tells.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError):  # An older kernel: a refusal is then noticed a socket buffer later.
            self._socket.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOTSENT_LOWAT)
        self._socket.setblocking(False)

    def poll(self, *, read: bool, write: bool, timeout: float | None = None) -> tuple[bool, bool]:
        """Wait for either direction."""
        return ready(self._socket.fileno() if read else None, self._socket.fileno() if write else None, timeout)

    def read(self, size: int) -> bytes:
        """What came, waiting for the first byte."""
        while True:
            try:
                return self._socket.recv(size)
            except BlockingIOError:
                self.poll(read=True, write=False)
            except OSError as wrong:
                raise self._failure(wrong) from None

    def write_some(self, data: memoryview) -> int:
        """Send what fits."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as wrong:
            raise self._failure(wrong) from None

    def _failure(self, wrong: OSError) -> MediumError:
        why = wrong.strerror or str(wrong)
        # Only a connection that was never made is refused: one that waited for its first write.
        return CannotConnect(self._where, why) if wrong.errno == errno.ECONNREFUSED else ConnectionLost(why)

    def close(self) -> None:
        """Close both directions."""
        self._socket.close()


def _open(address: tuple[str, int], timeout: float) -> socket.socket:
    """A connection as `socket.create_connection` makes it, which may wait for its first write (TCP Fast Open).

    The kernel decides: without a cookie of the server's, or where it has learned that the way there does not let such
    packets through, this waits for the handshake as ever.

    Raises:
        OSError: the name is unknown, or no address of it answers.
    """
    last = OSError("the name has no address")
    for family, kind, protocol, _, place in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        made = socket.socket(family, kind, protocol)
        try:
            if sys.platform == "linux":
                with contextlib.suppress(OSError):  # A kernel before 4.11.
                    made.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1)
            made.settimeout(timeout)
            made.connect(place)
        except OSError as wrong:
            made.close()
            last = wrong
        else:
            return made
    raise last
