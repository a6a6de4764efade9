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
"""Of `events.LinkMeasured`, and where it is in that: tcpi_rtt, min_rtt, snd_cwnd, snd_mss, data_segs_out, total_retrans
and rwnd_limited."""


def tcp_state(connection: socket.socket) -> dict[str, int] | None:
    """What the kernel says, by the names in `FIELDS`; None if it does not."""
    if sys.platform != "linux":
        return None
    try:
        said = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LAYOUT.size)
    except OSError:
        return None
    if len(said) < LAYOUT.size:
        return None
    found = LAYOUT.unpack(said)
    return {name: found[at] for name, at in FIELDS.items()}
