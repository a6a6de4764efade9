"""What the IPv4 packets of a link say of TCP: connections, the bytes in them, and which packets are copies.

Bytes are counted when they are first sent. A packet that carries nothing new (a pure acknowledgement, a keepalive) is
no message; a copy of what was sent before belongs to the message its connection sends at the time.
"""

from __future__ import annotations

from dataclasses import dataclass

from netem.counter import Counter, Message

_TCP = 6
_FIN, _SYN, _RESET, _ACK = 0x01, 0x02, 0x04, 0x10
_HALF = 1 << 31
_ALL = (1 << 32) - 1


@dataclass(slots=True)
class _Stream:
    """One direction of a connection."""

    next: int | None = None
    """The sequence number after the highest seen."""
    message: Message | None = None
    ended: bool = False


@dataclass(slots=True)
class _Connection:
    number: int
    opening: int
    """The sequence number of its SYN: another one is another connection between the same ports."""
    up: _Stream
    down: _Stream


@dataclass(frozen=True, slots=True)
class Seen:
    """What delivering a packet means to the counter."""

    established: int = 0
    """The number of a connection whose client now knows it is open."""
    message: Message | None = None


class SegmentCounter:
    """Tells a counter of the packets of one link."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter
        self._connections: dict[tuple[bytes, int, bytes, int], _Connection] = {}
        self._count = 0

    def begin(self, counter: Counter) -> None:
        """Another operation begins; open connections stay known."""
        self.counter = counter
        for connection in self._connections.values():
            connection.up.message = connection.down.message = None

    def sent(self, packet: bytes, at: int, now: int, *, up: bool) -> Seen | None:
        """A packet enters the link; its IPv4 header is at `at`. Give the result to `delivered` when it comes out."""
        if len(packet) < at + 40 or packet[at] >> 4 != 4 or packet[at + 9] != _TCP:
            return None
        tcp = at + (packet[at] & 15) * 4
        source, target = packet[at + 12 : at + 16], packet[at + 16 : at + 20]
        from_port, to_port = int.from_bytes(packet[tcp : tcp + 2]), int.from_bytes(packet[tcp + 2 : tcp + 4])
        flags = packet[tcp + 13]
        number = int.from_bytes(packet[tcp + 4 : tcp + 8])
        # The length the IP header says: a short Ethernet frame is filled up.
        total = int.from_bytes(packet[at + 2 : at + 4]) or len(packet) - at
        size = total - (tcp - at) - (packet[tcp + 12] >> 4) * 4
        name = (source, from_port, target, to_port) if up else (target, to_port, source, from_port)
        connection = self._connections.get(name)
        if flags & _SYN and not flags & _ACK:
            if connection is None or connection.opening != number:
                connection = self._open(name, number, now, early=size > 0)
            number = (number + 1) & _ALL
        elif connection is None:
            return None
        if flags & _SYN and flags & _ACK:
            connection.down.next = (number + 1) & _ALL
            if size == 0:
                return Seen(established=connection.number)
            number = connection.down.next
        if size <= 0 and not flags & _FIN:
            return None
        return Seen(message=self._carried(connection, number, max(0, size), bool(flags & _FIN), now, up=up))

    def _open(self, name: tuple[bytes, int, bytes, int], number: int, now: int, *, early: bool) -> _Connection:
        self._count += 1
        connection = self._connections[name] = _Connection(self._count, number, _Stream(), _Stream())
        # A first packet that carries bytes (TCP Fast Open) waits for no handshake.
        self.counter.opened(self._count, now, handshake=not early)
        return connection

    def _carried(
        self, connection: _Connection, number: int, size: int, end: bool, now: int, *, up: bool
    ) -> Message | None:
        stream, other = (connection.up, connection.down) if up else (connection.down, connection.up)
        after = (number + size) & _ALL
        new = size if stream.next is None else _ahead(after, stream.next)
        if new > 0:
            stream.next = after
        if new > 0 or (end and not stream.ended):
            stream.ended = stream.ended or end
            counter = self.counter
            message = counter.sent(connection.number, now, max(0, min(new, size)), up=up, end=end, ended=other.ended)
            stream.message = message or stream.message
        else:
            self.counter.repeated(up=up)
        return stream.message

    def delivered(self, seen: Seen, now: int) -> None:
        """A packet came out of the link."""
        if seen.established:
            self.counter.established(seen.established, now)
        elif seen.message is not None:
            self.counter.delivered(seen.message, now)


def _ahead(number: int, before: int) -> int:
    """How far a sequence number is beyond another, which it may be behind; they wrap."""
    difference = (number - before) & _ALL
    return difference if difference < _HALF else difference - _ALL - 1
