"""The counter of one operation: connections, bytes, messages, and the depth of each message.

**Message**: a maximal run of bytes that one side sent on one connection without receiving anything deeper in between.
A reply that TCP splits, requests sent without waiting, and a stream are one message each. The end of a stream belongs
to the bytes before it. Alone it is a message of no bytes, unless it goes to a client that has ended its own side.

**Depth** (Lamport): 1 + the greatest depth of all messages that were delivered to the sender, on any connection, when
it sent. A handshake is a message to the server and one back, before the client's first message on that connection. The
proxy cannot make a client wait for a handshake, because its kernel accepts at once. So connections that are opened one
after the other within a round trip look concurrent, and depth is too low there.

**Rounds**: half the greatest depth of a message delivered *to the client*, rounded up. A message without an answer is
no round trip. Depth is *potential* causality: a message that merely came first counts as if the sender had waited for
it, and depth is too high there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from netem.callsites import CallSites

KEPT_MESSAGES = 1000
"""The most messages of one operation that are kept for display. Later ones are only counted."""

KEPT_CONTENT = 4096
"""The most bytes of a message that are kept for display: more than the headers of most requests."""


@dataclass(slots=True)
class Message:
    """One message on the link."""

    connection: int
    """The number of the message's connection, from 1 in each network."""
    up: bool
    """True if the message is sent from client to server."""
    size: int
    """The number of bytes so far."""
    depth: int
    """The depth, including handshakes."""
    depth_without_handshake: int
    sent: float
    """The time when the first byte entered the link, in seconds since the clock's zero."""
    delivered: float | None = None
    """The time when the first byte was delivered, in the same seconds; None until then."""
    end: bool = False
    """True if the stream ended with this message."""
    content: bytes = field(default=b"", repr=False)
    """The first bytes of the message; empty if the network does not pass bytes to the counter."""
    sites: CallSites = ()
    """The lines of the program that sent the message's first bytes; empty if they are unknown."""


@dataclass(frozen=True)
class Counts:
    """The counts of one operation."""

    connections: int = 0
    """Connections opened in the operation."""
    bytes_up: int = 0
    """Bytes that the client put on the link, without TCP/IP headers."""
    bytes_down: int = 0
    """Bytes that the server put on the link, without TCP/IP headers."""
    flights_up: int = 0
    """Messages with bytes from the client."""
    flights_down: int = 0
    """Messages with bytes from the server."""
    depth: int = 0
    """The greatest depth of a message delivered to the client, including handshakes."""
    depth_without_handshake: int = 0
    """The greatest depth that the messages would have had if every connection had been open before."""
    packets_up: int = 0
    """Packet network: packets of any kind from the client, including copies and acknowledgements."""
    packets_down: int = 0
    """Packet network: packets of any kind from the server."""
    repeated: int = 0
    """Packet network: packets of both directions that carried only bytes that were sent before."""
    dropped: int = 0
    """Packet network: packets of both directions that the link lost."""
    not_tcp: int = 0
    """Packet network: packets of both directions that are not TCP, for example UDP. No other count includes them."""
    seconds: float = 0.0
    """Seconds from the client's first action to the last message delivered to the client."""
    application_rounds: float | None = None
    """Simulator: the time that the client waited, in units of the RTT at that time, including handshakes. It is exact
    on a link without rate, jitter and stall if the client waits for no timer. None if an RTT was 0 or RTTs were
    mixed."""
    application_rounds_without_handshake: float | None = None
    """`application_rounds` without the time of handshakes."""
    messages: tuple[Message, ...] = field(default=(), repr=False)
    """The first messages, in the order of their beginning."""
    omitted: int = 0
    """The number of messages after those in `messages`."""

    @property
    def rounds(self) -> int:
        """The round trips, including handshakes: 2 for a request on a fresh connection, 1 on an open one."""
        return -(-self.depth // 2)

    @property
    def rounds_without_handshake(self) -> int:
        """The round trips that the operation would have taken if every connection had been open before."""
        return -(-self.depth_without_handshake // 2)

    @property
    def handshake_rounds(self) -> int:
        """The round trips added by opening connections. Connections opened concurrently add one together."""
        return self.rounds - self.rounds_without_handshake

    @property
    def used(self) -> bool:
        """True if the operation used the network: a connection or a byte."""
        return bool(self.connections or self.bytes_up or self.bytes_down)


@dataclass(slots=True)
class _Side:
    """The depths of the deepest message that was delivered to one side."""

    depth: int = 0
    without_handshake: int = 0


class Counter:
    """The counter of one operation. A network calls it when bytes enter and leave its link; times are nanoseconds."""

    def __init__(self) -> None:
        self._sides = {True: _Side(), False: _Side()}  # by the direction in which the side sends
        self._opened: dict[int, int] = {}
        self._taken: dict[int, int] = {}
        self._current: dict[tuple[int, bool], Message] = {}
        self._messages: list[Message] = []
        self._omitted = 0
        self._bytes = {True: 0, False: 0}
        self._flights = {True: 0, False: 0}
        self._repeated = 0
        self._depth = _Side()
        self._begun: int | None = None
        self._last = 0
        self._connections = 0

    def opened(self, connection: int, now: int, *, handshake: bool) -> None:
        """Count a connection that the client opens. `handshake`: True if that costs a round trip."""
        self._begin(now)
        self._connections += 1
        if handshake:
            self._opened[connection] = self._sides[True].depth + 2

    def taken(self, message: Message) -> None:
        """Record that the server accepted the bytes of a connection's first packet (TCP Fast Open). Only the client's
        later bytes wait for the handshake."""
        self._taken[message.connection] = message.depth + 1

    def refused(self, message: Message) -> None:
        """Record that the server refused the bytes of a connection's first packet. The client sends them again after
        the handshake."""
        self._opened[message.connection] = message.depth + 1
        self._bytes[message.up] -= message.size
        self._flights[message.up] -= 1
        self._current.pop((message.connection, message.up), None)
        kept = [each for each in self._messages if each is not message]
        self._omitted -= len(kept) == len(self._messages)
        self._messages = kept

    def established(self, connection: int, now: int) -> None:
        """Record that the answer to a handshake, or a refusal, reaches the client. Its later messages may depend on it.

        This does nothing for a connection that was opened before this operation or without a handshake.
        """
        depth = self._opened.get(connection, 0)
        if depth:
            client = self._sides[True]
            client.depth = max(client.depth, depth)
            self._depth.depth = max(self._depth.depth, depth)
            self._last = max(self._last, now)

    def sent(
        self,
        connection: int,
        now: int,
        size: int,
        *,
        up: bool,
        end: bool = False,
        ended: bool = False,
        content: bytes | memoryview = b"",
        sites: Callable[[], CallSites] | None = None,
    ) -> Message | None:
        """Count `size` bytes, or with `end` the end of a stream, that enter the link. Return their message, which the
        caller passes to `delivered`; None for an end that is no message.

        `ended`: True if the receiver has ended its own side. `content` (the bytes) and `sites` are only for display;
        `sites` is called once for each message, and returns the lines that sent it.
        """
        self._begin(now)
        side = self._sides[up]
        before = self._opened.get(connection, 0)
        if before and not up:
            before += 1  # the server gets the connection with the third packet of the handshake
        if up:
            before = max(before, self._taken.get(connection, 0))
        depth = 1 + max(side.depth, before)
        without = 1 + side.without_handshake
        message = self._current.get((connection, up))
        if message is None or (message.depth, message.depth_without_handshake) != (depth, without) or message.end:
            if not size and not up and ended:
                return None
            message = Message(connection, up, 0, depth, without, now / 1e9)
            self._current[connection, up] = message
            if len(self._messages) < KEPT_MESSAGES:
                self._messages.append(message)
                if sites is not None:
                    message.sites = sites()
            else:
                self._omitted += 1
        if size and not message.size:
            self._flights[up] += 1
        if content and message.size == len(message.content) < KEPT_CONTENT:
            message.content += bytes(content[: KEPT_CONTENT - message.size])
        message.size += size
        message.end = end
        self._bytes[up] += size
        return message

    def repeated(self, packets: int = 1) -> None:
        """Count packets that carry only bytes that were sent before."""
        self._repeated += packets

    def delivered(self, message: Message, now: int) -> None:
        """Record that bytes of a message were delivered at the remote end."""
        if message.delivered is None:
            message.delivered = now / 1e9
        receiver = self._sides[not message.up]
        receiver.depth = max(receiver.depth, message.depth)
        receiver.without_handshake = max(receiver.without_handshake, message.depth_without_handshake)
        if not message.up:
            self._depth.depth = max(self._depth.depth, message.depth)
            self._depth.without_handshake = max(self._depth.without_handshake, message.depth_without_handshake)
            self._last = max(self._last, now)

    def _begin(self, now: int) -> None:
        if self._begun is None:
            self._begun = self._last = now

    def counts(
        self, application_rounds: float | None = None, application_rounds_without_handshake: float | None = None
    ) -> Counts:
        """Return the counts so far."""
        return Counts(
            connections=self._connections,
            bytes_up=self._bytes[True],
            bytes_down=self._bytes[False],
            flights_up=self._flights[True],
            flights_down=self._flights[False],
            depth=self._depth.depth,
            depth_without_handshake=self._depth.without_handshake,
            repeated=self._repeated,
            seconds=(self._last - (self._begun or 0)) / 1e9,
            application_rounds=application_rounds,
            application_rounds_without_handshake=application_rounds_without_handshake,
            messages=tuple(replace(message) for message in self._messages),
            omitted=self._omitted,
        )
