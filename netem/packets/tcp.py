"""The TCP part of an IPv4 packet. Pure: bytes in, a segment out; of anything else, and of a broken packet, none."""

from __future__ import annotations

import struct
from typing import NamedTuple

_IP = struct.Struct("!BxH5xB2x8s")
"""Version and words of the header, length of all, protocol, addresses of source and target."""
_TCP = struct.Struct("!4sIIBB6x")
"""Ports of source and target, sequence number, number acknowledged, words of the header, flags."""
_PROTOCOL = 6
FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10
"""Flags."""


class Segment(NamedTuple):
    """One TCP segment, or a train of them. Made for each packet that passes, so it holds what stands there."""

    ends: bytes
    """IPv4 addresses, then ports, of source and target."""
    number: int
    """The sequence number of its first byte, or of its SYN."""
    size: int
    """Bytes of content."""
    flags: int
    acknowledged: int
    """The sequence number that is expected next of the other side; where `flags` have `ACK`."""


def parse(frame: bytes, at: int) -> Segment | None:
    """The segment in a frame whose IPv4 header is at `at`."""
    room = len(frame) - at
    if room < _IP.size + _TCP.size:
        return None
    version, total, protocol, addresses = _IP.unpack_from(frame, at)
    start = (version & 15) * 4
    if version >> 4 != 4 or protocol != _PROTOCOL or start < _IP.size or room < start + _TCP.size:
        return None
    ports, number, acknowledged, words, flags = _TCP.unpack_from(frame, at + start)
    # The length IP says: a short Ethernet frame is filled up. A train of 64 KiB does not fit there and says 0.
    size = (total or room) - start - (words >> 4) * 4
    if size < 0 or total > room:
        return None
    return Segment(addresses + ports, number, size, flags, acknowledged)


def turned(ends: bytes) -> bytes:
    """The `ends` of what goes the other way."""
    return ends[4:8] + ends[:4] + ends[10:] + ends[8:10]
