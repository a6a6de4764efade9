"""What an IPv4 packet says of TCP. Pure: bytes in, a segment out; of anything else, and of a broken packet, none."""

from __future__ import annotations

from dataclasses import dataclass

_TCP = 6
_HEADER = 20
"""Bytes of either header at the least."""
_FIN, _SYN, _ACK = 0x01, 0x02, 0x10


@dataclass(frozen=True, slots=True)
class Segment:
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


def parse(frame: bytes, at: int) -> Segment | None:
    """The segment in a frame whose IPv4 header is at `at`."""
    if len(frame) < at + 2 * _HEADER or frame[at] >> 4 != 4 or frame[at + 9] != _TCP:
        return None
    tcp = at + (frame[at] & 15) * 4
    if tcp < at + _HEADER or len(frame) < tcp + _HEADER:
        return None
    # The length IP says: a short Ethernet frame is filled up. A train of 64 KiB does not fit there and says 0.
    total = int.from_bytes(frame[at + 2 : at + 4]) or len(frame) - at
    size = total - (tcp - at) - (frame[tcp + 12] >> 4) * 4
    if size < 0 or total > len(frame) - at:
        return None
    flags = frame[tcp + 13]
    return Segment(
        source=(frame[at + 12 : at + 16], int.from_bytes(frame[tcp : tcp + 2])),
        target=(frame[at + 16 : at + 20], int.from_bytes(frame[tcp + 2 : tcp + 4])),
        number=int.from_bytes(frame[tcp + 4 : tcp + 8]),
        size=size,
        syn=bool(flags & _SYN),
        ack=bool(flags & _ACK),
        fin=bool(flags & _FIN),
    )
