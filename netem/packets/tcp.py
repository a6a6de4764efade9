"""Parses the TCP part of an IPv4 packet. For other or malformed packets the result is None. No I/O is done here."""

from __future__ import annotations

import struct
from typing import NamedTuple

_IP = struct.Struct("!BxH5xB2x8s")
"""The used fields of an IPv4 header: version and header length (in words), total length, protocol, both addresses."""
_TCP = struct.Struct("!4sIIBB6x")
"""The used fields of a TCP header: both ports, sequence and acknowledgement number, header length (words), flags."""
_PROTOCOL = 6
FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10
"""The flags of a segment."""


class Segment(NamedTuple):
    """One TCP segment, or a train of segments. One is created for each packet, so it has the packet's fields
    undecoded."""

    ends: bytes
    """The IPv4 addresses of source and target, followed by their ports."""
    number: int
    """The sequence number of the segment's first byte, or of its SYN."""
    size: int
    """The bytes of content."""
    flags: int
    acknowledged: int
    """The sequence number expected next from the other side; valid if `flags` has `ACK`."""


def parse(frame: bytes, at: int) -> Segment | None:
    """Return the segment in a frame whose IPv4 header begins at `at`. Return None if the frame is not TCP, or is
    malformed."""
    room = len(frame) - at
    if room < _IP.size + _TCP.size:
        return None
    version, total, protocol, addresses = _IP.unpack_from(frame, at)
    start = (version & 15) * 4
    if version >> 4 != 4 or protocol != _PROTOCOL or start < _IP.size or room < start + _TCP.size:
        return None
    ports, number, acknowledged, words, flags = _TCP.unpack_from(frame, at + start)
    # Use IP's length, since a short Ethernet frame is padded. For a train of 64 KiB the length does not fit and is 0.
    size = (total or room) - start - (words >> 4) * 4
    if size < 0 or total > room:
        return None
    return Segment(addresses + ports, number, size, flags, acknowledged)


def turned(ends: bytes) -> bytes:
    """Return the `ends` of the opposite direction."""
    return ends[4:8] + ends[:4] + ends[10:] + ends[8:10]
