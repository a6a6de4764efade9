"""Count the TCP segments of a link: find connections, new bytes and copies, and call the counter.

Bytes are counted when they are first sent. A segment without bytes (a pure acknowledgement) is no message. A copy of
earlier bytes belongs to the present message of its connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from netem.counter import Counter, Message
from netem.packets.tcp import ACK, FIN, RST, SYN, Segment, parse, turned

_HALF = 1 << 31
_ALL = (1 << 32) - 1


@dataclass(slots=True)
class _Stream:
    """One direction of a connection."""

    next: int | None = None
    """The sequence number after the highest one that was seen."""
    message: Message | None = None
    ended: bool = False
    after: int | None = None
    """The sequence number after the stream's FIN."""
    taken: bool = False
    """True if the sender of the stream got the acknowledgement of the whole stream, including the FIN."""


@dataclass(slots=True)
class _Connection:
    number: int
    ends: bytes
    """The addresses and ports of both ends, as in the packets of its client."""
    opening: int
    """The sequence number of the connection's SYN. A SYN with another number opens a new connection between the same
    ports."""
    undecided: Delivery | None = None
    """The delivery of a SYN with bytes (TCP Fast Open), until the answer shows whether the server accepted them."""
    up: _Stream = field(default_factory=_Stream)
    down: _Stream = field(default_factory=_Stream)


@dataclass(slots=True)
class Delivery:
    """The calls to make when a packet is delivered, on the counter of the operation in which the packet was sent."""

    counter: Counter
    established: int = 0
    """The number of the connection that the packet opens or refuses for its client; 0 if it does neither."""
    message: Message | None = None
    closing: Callable[[], None] | None = None
    """A function to call at the delivery if the packet may be the last of its connection, else None."""

    def delivered(self, now: int) -> None:
        """Record that the packet has left the link."""
        if self.established:
            self.counter.established(self.established, now)
        if self.message is not None:
            self.counter.delivered(self.message, now)
        if self.closing is not None:
            self.closing()


class SegmentCounter:
    """The packet counter of one link. It reports the messages to a `Counter`."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter
        self._connections: dict[bytes, _Connection] = {}
        """The connections, each stored under its address pair in both directions."""
        self._count = 0
        self.not_tcp = 0
        """The number of packets that are not TCP."""

    def begin(self, counter: Counter) -> None:
        """Begin another operation with its own counter. Open connections are kept."""
        self.counter, self.not_tcp = counter, 0
        for connection in self._connections.values():
            connection.up.message = connection.down.message = None

    def sent(self, frame: bytes, at: int, now: int, *, up: bool, packets: int = 1) -> Delivery | None:
        """Count a frame of `packets` packets that enters the link, with its IPv4 header at `at`. Unless the result is
        None, the caller must call its `delivered` when the frame, or its first packet, leaves the link."""
        segment = parse(frame, at)
        if segment is None:
            self.not_tcp += packets
            return None
        flags, size = segment.flags, segment.size
        opening = flags & (SYN | ACK) == SYN
        connection = self._connections.get(segment.ends)
        if opening and (connection is None or connection.opening != segment.number):
            connection = self._open(segment, now)
            if size:
                message = self._carried(connection, segment, now, up=up)
                connection.undecided = Delivery(self.counter, message=message)
                return None
        if connection is None:
            return None  # opened before the network was counted
        # A refusal is an answer too: the reset that answers a SYN has the number 0.
        refusal = flags & RST and not segment.number
        answer = flags & ACK and (flags & SYN or refusal) and not up
        established = connection.number if answer else 0
        if established and connection.undecided is not None:
            self._decide(connection, connection.undecided, segment, now)
        message = self._carried(connection, segment, now, up=up, packets=packets) if size or flags & FIN else None
        if opening:
            return None  # a copy
        stream, other = (connection.up, connection.down) if up else (connection.down, connection.up)
        if flags & FIN:
            stream.after = (segment.number + bool(flags & SYN) + size + 1) & _ALL
        closing = None
        if flags & RST or other.after is not None:
            closing = partial(self._closing, connection, segment, other)
        return Delivery(self.counter, established, message, closing) if established or message or closing else None

    def _closing(self, connection: _Connection, segment: Segment, other: _Stream) -> None:
        """Handle the delivery of a segment that resets the connection, or that may acknowledge the end of the other
        stream. Drop the connection if no more segments can arrive."""
        if segment.flags & ACK and other.after is not None and _ahead(segment.acknowledged, other.after) >= 0:
            other.taken = True
        done = segment.flags & RST or (connection.up.taken and connection.down.taken)
        if done and self._connections.get(connection.ends) is connection:
            del self._connections[connection.ends], self._connections[turned(connection.ends)]

    def _open(self, segment: Segment, now: int) -> _Connection:
        self._count += 1
        # Bytes in the first segment do not wait for a handshake, unless the server refuses them.
        self.counter.opened(self._count, now, handshake=not segment.size)
        made = _Connection(self._count, segment.ends, segment.number)
        self._connections[segment.ends] = self._connections[turned(segment.ends)] = made
        return made

    def _decide(self, connection: _Connection, first: Delivery, answer: Segment, now: int) -> None:
        """Decide whether the bytes of a SYN were delivered, by the sequence number that its answer acknowledges."""
        connection.undecided = None
        begin = (connection.opening + 1) & _ALL
        if answer.flags & SYN and _ahead(answer.acknowledged, begin) > 0:
            first.delivered(now)
            if first.message is not None:
                first.counter.taken(first.message)
        elif first.message is not None:
            first.counter.refused(first.message)
            connection.up.next, connection.up.message = begin, None

    def _carried(
        self, connection: _Connection, segment: Segment, now: int, *, up: bool, packets: int = 1
    ) -> Message | None:
        stream, other = (connection.up, connection.down) if up else (connection.down, connection.up)
        size, fin = segment.size, bool(segment.flags & FIN)
        after = (segment.number + bool(segment.flags & SYN) + size) & _ALL
        new = size if stream.next is None else min(_ahead(after, stream.next), size)
        if new > 0:
            stream.next = after
        if new > 0 or (fin and not stream.ended):
            stream.ended = stream.ended or fin
            message = self.counter.sent(connection.number, now, max(0, new), up=up, end=fin, ended=other.ended)
            stream.message = message or stream.message
        else:
            self.counter.repeated(packets)
        return stream.message


def _ahead(number: int, before: int) -> int:
    """Return the distance from the sequence number `before` to `number`; negative if `number` is behind. Sequence
    numbers wrap."""
    difference = (number - before) & _ALL
    return difference if difference < _HALF else difference - _ALL - 1
