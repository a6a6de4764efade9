"""What an IPv4 packet says of TCP. Pure: bytes in, a segment out; of anything else, and of a broken packet, none."""

from __future__ import annotations

import struct
from typing import NamedTuple

_IP = struct.Struct("!BxH5xB2x4s4s")
"""Version and words of the header, length of all, protocol, source, target."""
_TCP = struct.Struct("!HHIIBB6x")
"""Ports, sequence number, number acknowledged, words of the header, flags."""
_PROTOCOL = 6
_FIN, _SYN, _RST, _ACK = 0x01, 0x02, 0x04, 0x10


class Segment(NamedTuple):
    """One TCP segment, or a train of them."""

    source: tuple[bytes, int]
    """IPv4 address and port."""
    target: tuple[bytes, int]
    number: int
    """The sequence number of its first byte, or of its SYN."""
    size: int
    """Bytes of content."""
    syn: bool
    ack: bool
    fin: bool
    rst: bool
    acknowledged: int
    """The sequence number that is expected next of the other side; where `ack`."""


def parse(frame: bytes, at: int) -> Segment | None:
    """The segment in a frame whose IPv4 header is at `at`."""
    room = len(frame) - at
    if room < _IP.size + _TCP.size:
        return None
    version, total, protocol, source, target = _IP.unpack_from(frame, at)
    start = (version & 15) * 4
    if version >> 4 != 4 or protocol != _PROTOCOL or start < _IP.size or room < start + _TCP.size:
        return None
    source_port, target_port, number, acknowledged, words, flags = _TCP.unpack_from(frame, at + start)
    # The length IP says: a short Ethernet frame is filled up. A train of 64 KiB does not fit there and says 0.
    size = (total or room) - start - (words >> 4) * 4
    if size < 0 or total > room:
        return None
    ends = (source, source_port), (target, target_port)
    syn, ack, fin, rst = bool(flags & _SYN), bool(flags & _ACK), bool(flags & _FIN), bool(flags & _RST)
    return Segment(*ends, number, size, syn, ack, fin, rst, acknowledged)
