"""What the kernel knows of a TCP connection: struct tcp_info of linux/tcp.h."""

from __future__ import annotations

import socket
import struct
import sys
from typing import NamedTuple

LAYOUT = struct.Struct("=8B24I4Q6I4Q")
"""Up to tcpi_sndbuf_limited, of Linux 4.10."""

SND_MSS, RTT, SND_CWND, TOTAL_RETRANS, MIN_RTT, SENT_SEGS = 10, 23, 26, 31, 39, 41
BUSY_TIME, RWND_LIMITED, SNDBUF_LIMITED = 43, 44, 45
"""Of the fields in that, in their order."""


class TcpState(NamedTuple):
    """As `events.LinkMeasured` has it."""

    rtt: int
    least_rtt: int
    window: int
    packet: int
    packets: int
    again: int
    busy: int
    by_window: int
    by_buffer: int


def tcp_state(connection: socket.socket) -> TcpState | None:
    """What the kernel says; None if it does not."""
    if sys.platform != "linux":
        return None
    try:
        said = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LAYOUT.size)
    except OSError:
        return None
    if len(said) < LAYOUT.size:
        return None
    found = LAYOUT.unpack(said)
    order = (RTT, MIN_RTT, SND_CWND, SND_MSS, SENT_SEGS, TOTAL_RETRANS, BUSY_TIME, RWND_LIMITED, SNDBUF_LIMITED)
    return TcpState(*[found[each] for each in order])
