"""What the kernel knows of a TCP connection: struct tcp_info of linux/tcp.h."""

from __future__ import annotations

import socket
import struct
import sys

LAYOUT = struct.Struct("=8B24I4Q6I4Q")
"""Up to tcpi_sndbuf_limited, of Linux 4.10."""

FIELDS = {
    "rtt": 23,
    "least_rtt": 39,
    "window": 26,
    "packet": 10,
    "packets": 41,
    "again": 31,
    "by_window": 44,
}
"""Of `trace.events.LinkMeasured`, and where it is in that: tcpi_rtt, min_rtt, snd_cwnd, snd_mss, data_segs_out,
total_retrans and rwnd_limited."""

PREFIX = "tcp_"
"""Of these names among the counts that a server tells."""


def tcp_state(connection: socket.socket) -> dict[str, int] | None:
    """What the kernel says, by the names in `FIELDS`, and as `delays` whether small packets are delayed (Nagle's
    algorithm, RFC 896); None if it does not."""
    if sys.platform != "linux":
        return None
    try:
        said = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LAYOUT.size)
        delays = not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    except OSError:
        return None
    if len(said) < LAYOUT.size:
        return None
    found = LAYOUT.unpack(said)
    return {name: found[at] for name, at in FIELDS.items()} | {"delays": int(delays)}


def tcp_counts(connection: socket.socket) -> dict[str, int]:
    """The same as a server tells it of its end; empty if the kernel says nothing."""
    return {f"{PREFIX}{name}": value for name, value in (tcp_state(connection) or {}).items()}
