"""The state of a TCP connection in the kernel: struct tcp_info of linux/tcp.h."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Mapping

LAYOUT = struct.Struct("=8B24I4Q6I4Q")
"""The fields of struct tcp_info up to tcpi_sndbuf_limited (Linux 4.10)."""

FIELDS = {
    "rtt": 23,
    "least_rtt": 39,
    "window": 26,
    "packet": 10,
    "packets": 41,
    "again": 31,
    "by_window": 44,
}
"""The fields of `trace.events.LinkMeasured`, with their indexes in the tuple that `LAYOUT` unpacks: tcpi_rtt, min_rtt,
snd_cwnd, snd_mss, data_segs_out, total_retrans and rwnd_limited."""

SUMS = ("packets", "again", "by_window")
"""The fields that count from the start of the connection."""

PREFIX = "tcp_"
"""The prefix of the names of `FIELDS` in the counts that a server sends."""


def tcp_state(connection: socket.socket) -> dict[str, int]:
    """Return the kernel's counts of a connection, by the names in `FIELDS`; empty if the system reports none. `delays`
    is 1 if small packets are delayed (Nagle's algorithm, RFC 896)."""
    if sys.platform != "linux":
        return {}
    try:
        said = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LAYOUT.size)
        delays = not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    except OSError:
        return {}
    if len(said) < LAYOUT.size:
        return {}
    found = LAYOUT.unpack(said)
    return {name: found[at] for name, at in FIELDS.items()} | {"delays": int(delays)}


def tcp_counts(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of a server's connection for one request, from the results of `tcp_state` at its beginning and
    now."""
    return {f"{PREFIX}{name}": value - before.get(name, 0) * (name in SUMS) for name, value in now.items()}
