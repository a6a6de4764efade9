"""A TLS connection in a process of its own, which ends with the connection or with its standard streams.

The keys and counters of TLS are in the memory of one process, so a connection cannot be lent to another process by its
descriptor alone. The agent holds the pipes to this process instead, like those to `ssh`.
"""

from __future__ import annotations

import os
import select

from smartserver.client.media.tls import TlsMedium
from smartserver.client.trust import Trust
from smartserver.programs import python
from smartserver.wire.limits import RECEIVE_CHUNK

PROGRAM = "smartserver.cli.tls_relay"

CONNECTED = b"+"
"""The first byte that a connected relay sends. Nothing is sent to the relay before."""


def command(host: str, port: int, trust: Trust) -> list[str]:
    """Return the command that starts a relay."""
    return python("-m", PROGRAM, host, str(port), *trust)


def relay(server: TlsMedium, source: int, sink: int) -> None:
    """Carry bytes in both directions until either side ends."""
    for side in (source, sink):
        os.set_blocking(side, False)
    up = down = b""
    while True:
        asked = select.poll()
        events = (0 if down else select.POLLIN) | (select.POLLOUT if up else 0)
        if events:  # `poll` reports the server's end without any event, too, and would do so again and again.
            asked.register(server.fileno(), events)
        if not up:
            asked.register(source, select.POLLIN)
        # `poll` reports the end of `sink` even if nothing is to be written.
        asked.register(sink, select.POLLOUT if down else 0)
        found = dict(asked.poll())
        if found.get(sink, 0) & (select.POLLERR | select.POLLHUP):
            return
        if not up and found.get(source):
            up = os.read(source, RECEIVE_CHUNK)
            if not up:
                return
        if up:
            up = up[server.write_some(memoryview(up)) :]
        if not down and server.fill():
            down = server.read(RECEIVE_CHUNK)
            if not down:
                return
        if down:
            try:
                down = down[os.write(sink, down) :]
            except BlockingIOError:
                continue
