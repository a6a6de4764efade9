"""A train of segments, as the kernel hands it over: how many packets it is on the wire, and those packets.

Linux cuts what a program sends as late as it can, and leaves it to a network card that offers to (segmentation
offload); here that is us. What a train is, the header of virtio before it says (linux/virtio_net.h). Pure.
"""

from __future__ import annotations

import struct

VIRTIO_BYTES = 10

_VIRTIO = struct.Struct("=BBHH")
"""Flags, kind of train, a hint we have no use for, bytes of content in each segment."""
_NO_TRAIN, _OF_TCP, _OF_UDP, _MARKED = 0, 1, 5, 0x80
"""Kinds of trains; the mark says that congestion was reported (CWR), which is the first segment's to say."""
_IP = struct.Struct("!BBHH4sH8s")
"""Words of the header, service, length of all, name, flags to protocol, checksum, addresses."""
_TCP = struct.Struct("!4sI4sBB2sH")
"""Ports, sequence number, number acknowledged, words of the header, flags, window, checksum."""
_UDP = struct.Struct("!4sHH")
"""Ports, length, checksum."""
_TCP_WORDS = 12
_OF_THE_LAST = 0x01 | 0x08
"""FIN and PSH."""
_OF_THE_FIRST = 0x80
"""CWR."""


def packets_in(frame: bytes, at: int) -> int:
    """The number of packets that a frame is on the wire; its IPv4 header is at `at`."""
    size, first = _content(frame, at)
    return max(1, -(-(len(frame) - first) // size)) if size else 1


def cut(frame: bytes, at: int) -> list[bytes]:
    """The packets a frame is on the wire, each with what stands before it.

    They are what a network card would send, and like the train they leave the checksum of TCP or UDP to who receives
    them: it has the sum of the pseudo-header in its place.
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
    """Bytes of content in each segment of a train, and where the content begins; 0: it is no train that we know."""
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
    """Fold a sum as the checksums of the Internet do: the carry comes in again at the low end (RFC 1071)."""
    return number % 0xFFFF
