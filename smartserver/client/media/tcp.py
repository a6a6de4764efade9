"""TCP. One write leaves as one flight: no Nagle, and little lies in the kernel unsent."""

from __future__ import annotations

import contextlib
import socket

from smartserver.client.media.ready import ready
from smartserver.client.medium import CannotConnect, ConnectionLost
from smartserver.wire.limits import NOTSENT_LOWAT

CONNECT_TIMEOUT = 60.0
"""Seconds; Linux itself gives up after about 130, and no link in use has a round trip near a minute."""

TCP_NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", 25)


class TcpMedium:
    """A TCP connection; implements `Medium`."""

    def __init__(self, host: str, port: int) -> None:
        """Connect.

        Raises:
            CannotConnect: the name is unknown or none, nobody listens, or nothing answers.
        """
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), CONNECT_TIMEOUT)
        except TimeoutError:
            raise CannotConnect(where, f"no answer within {CONNECT_TIMEOUT:.0f} s") from None
        except OSError as wrong:
            raise CannotConnect(where, wrong.strerror or str(wrong)) from None
        except UnicodeError:  # Of the encoding of names, whose own words (IDNA) help nobody.
            raise CannotConnect(where, "no host can have that name") from None
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
                raise ConnectionLost(wrong.strerror or str(wrong)) from None

    def write_some(self, data: memoryview) -> int:
        """Send what fits."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as wrong:
            raise ConnectionLost(wrong.strerror or str(wrong)) from None

    def close(self) -> None:
        """Close both directions."""
        self._socket.close()
