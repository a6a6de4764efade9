"""Trains of segments, as the kernel passes them on: count or make the packets that a train is on the wire. No I/O here.

Linux cuts sent bytes into packets as late as possible, and leaves that to a network card that offers it (segmentation
offload); here the emulator is that card. The header of virtio before a frame describes the train (linux/virtio_net.h).
"""

from __future__ import annotations

import struct

VIRTIO_BYTES = 10

_VIRTIO = struct.Struct("=BBHH")
"""The used fields of a virtio header: flags, kind of train, an unused hint, bytes of content in each segment."""
_NO_TRAIN, _OF_TCP, _OF_UDP, _MARKED = 0, 1, 5, 0x80
"""Kinds of trains. The mark says that congestion was reported (CWR), a flag of the first segment alone."""
_IP = struct.Struct("!BBHH4sH8s")
"""The fields of an IPv4 header: version and header length, type of service, total length, identification, four bytes
from flags to protocol, checksum, addresses."""
_TCP = struct.Struct("!4sI4sBB2sH")
"""The fields of a TCP header: ports, sequence and acknowledgement number, header length, flags, window, checksum."""
_UDP = struct.Struct("!4sHH")
"""The fields of a UDP header: ports, length, checksum."""
_TCP_WORDS = 12
_OF_THE_LAST = 0x01 | 0x08
"""The flags FIN and PSH."""
_OF_THE_FIRST = 0x80
"""The flag CWR."""


def packets_in(frame: bytes, at: int) -> int:
    """Return the number of packets that a frame is on the wire. Its IPv4 header begins at `at`."""
    size, first = _content(frame, at)
    return max(1, -(-(len(frame) - first) // size)) if size else 1


def cut(frame: bytes, at: int) -> list[bytes]:
    """Return the packets that a frame becomes on the wire, each with the headers before its IPv4 header.

    They are the packets that a network card would send. But like the train, they have the sum of the pseudo-header in
    place of the checksum of TCP or UDP, and the receiver accepts that.
    """
    size, first = _content(frame, at)
    if not size or len(frame) - first <= size:
        return [frame]
    head = bytearray(_VIRTIO.pack(frame[0], _NO_TRAIN, 0, 0) + frame[_VIRTIO.size : first])
    words, service, _, name, protocol, _, addresses = _IP.unpack_from(frame, at)
    start = at + (words & 15) * 4
    _IP.pack_into(head, at, words, service, 0, 0, protocol, 0, addresses)
    ip_sum = _sum(head[at:start])
    pseudo = _sum(addresses) + protocol[-1]
    tcp = frame[1] & ~_MARKED == _OF_TCP
    if tcp:
        ports, number, acknowledged, tcp_words, flags, window, _ = _TCP.unpack_from(frame, start)
    else:
        ports = frame[start : start + 4]
    content = memoryview(frame)
    packets = []
    for begin in range(first, len(frame), size):
        piece = content[begin : begin + size]
        total = first - at + len(piece)
        checked = total - (start - at)
        _IP.pack_into(
            head, at, words, service, total, name, protocol, ~_folded(ip_sum + total + name) & 0xFFFF, addresses
        )
        if tcp:
            now = flags if begin + size >= len(frame) else flags & ~_OF_THE_LAST
            _TCP.pack_into(head, start, ports, number, acknowledged, tcp_words, now, window, _folded(pseudo + checked))
            flags &= ~_OF_THE_FIRST
            number = (number + size) & 0xFFFFFFFF
        else:
            _UDP.pack_into(head, start, ports, checked, _folded(pseudo + checked))
        name = (name + 1) & 0xFFFF
        packets.append(b"".join((head, piece)))
    return packets


def _content(frame: bytes, at: int) -> tuple[int, int]:
    """Return the bytes of content in each segment of a train, and the offset of the content; 0, 0 for other frames."""
    _, kind, _, size = _VIRTIO.unpack_from(frame)
    kind &= ~_MARKED
    if not size or kind not in (_OF_TCP, _OF_UDP) or len(frame) < at + _IP.size or frame[at] >> 4 != 4:
        return 0, 0
    start = at + (frame[at] & 15) * 4
    if kind == _OF_UDP:
        return size, start + _UDP.size
    return (size, start + (frame[start + _TCP_WORDS] >> 4) * 4) if len(frame) >= start + _TCP.size else (0, 0)


def _sum(words: bytes | bytearray) -> int:
    return sum(struct.unpack(f"!{len(words) // 2}H", words))


def _folded(number: int) -> int:
    """Fold a sum to 16 bits as an Internet checksum, in which the carry is added at the low end (RFC 1071)."""
    return number % 0xFFFF
