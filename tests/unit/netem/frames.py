"""Frames by hand: IPv4 packets of TCP segments, after a header of zeros; and trains of them, after that of virtio."""

from __future__ import annotations

import struct

CLIENT, SERVER = (bytes((10, 201, 0, 1)), 40000), (bytes((10, 201, 0, 2)), 80)
FIN, SYN, RST, PSH, ACK, CWR = 0x01, 0x02, 0x04, 0x08, 0x10, 0x80


def frame(
    number: int,
    size: int = 0,
    flags: int = ACK,
    *,
    up: bool = True,
    header: int = 10,
    options: int = 0,
    port: int = 0,
    acknowledged: int = 0,
) -> bytes:
    """One segment; `options`: bytes of TCP options, `port`: the client's, if another."""
    client = (CLIENT[0], port or CLIENT[1])
    source, target = (client, SERVER) if up else (SERVER, client)
    total = 40 + options + size
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, total, 0, 0, 64, 6, 0, source[0], target[0])
    words = (20 + options) // 4 << 4
    numbers = number & 0xFFFFFFFF, acknowledged & 0xFFFFFFFF
    tcp = struct.pack("!HHIIBBHHH", source[1], target[1], *numbers, words, flags, 0, 0, 0)
    return bytes(header) + ip + tcp + bytes(options) + b"x" * size


def train(
    number: int,
    size: int,
    segment: int,
    flags: int = ACK,
    *,
    ethernet: int = 0,
    options: int = 0,
    name: int = 5,
    udp: bool = False,
    marked: bool = False,
) -> bytes:
    """A train that the client's kernel hands over to be cut into segments of `segment` bytes, its checksums not yet
    made."""
    headers = 28 if udp else 40 + options
    kind = 5 if udp else 0x81 if marked else 1
    virtio = struct.pack("=BBHHHH", 1, kind, ethernet + headers, segment, ethernet + 20, 6 if udp else 16)
    ends = CLIENT[0], SERVER[0]
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, headers + size, name, 0x4000, 64, 17 if udp else 6, 0, *ends)
    if udp:
        inner = struct.pack("!HHHH", CLIENT[1], SERVER[1], 8 + size, 0)
    else:
        words = (20 + options) // 4 << 4
        numbers = number & 0xFFFFFFFF, 77
        inner = struct.pack("!HHIIBBHHH", CLIENT[1], SERVER[1], *numbers, words, flags, 99, 0, 0) + bytes(options)
    return virtio + b"e" * ethernet + ip + inner + b"x" * size
