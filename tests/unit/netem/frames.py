"""Frames by hand: IPv4 packets of TCP segments, after a header of zeros."""

from __future__ import annotations

import struct

CLIENT, SERVER = (bytes((10, 201, 0, 1)), 40000), (bytes((10, 201, 0, 2)), 80)
FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10


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
