"""The counter of one operation: connections, bytes, messages, and the depth of each message.

**Message**: a maximal run of bytes that one side sent on one connection without having received anything deeper in
between. A reply that TCP splits, requests sent without waiting, and a stream are one message each. The end of a stream
belongs to the bytes before it; alone it is a message of no bytes, unless it goes to a client that has ended its own
side.

**Depth** (Lamport): 1 + the greatest depth of what had been delivered to the sender, on any connection, when it sent.
A handshake is a message to the server and one back, before anything the client sends on that connection. Where the
client is not made to wait for it (the proxy, whose kernel accepts at once), what the client opens before it is over
looks as if it were opened side by side with it: there depth errs downward.

**Rounds**: half the greatest depth of a message delivered *to the client*, rounded up: what nobody was answered is no
trip. Depth is *potential* causality: it counts a message as waited for when it merely came first, so it errs upward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from netem.callsites import CallSites

KEPT_MESSAGES = 1000
"""Messages of one operation that are kept for display; more are counted only."""

KEPT_CONTENT = 4096
"""Bytes of a message that are kept, to say what it was: more than the headers of most requests."""


@dataclass(slots=True)
class Message:
    """One message on the link."""

    connection: int
    """Connections are numbered from 1 in each network."""
    up: bool
    """From client to server."""
    size: int
    """Bytes so far."""
    depth: int
    """With handshakes."""
    depth_without_handshake: int
    sent: float
    """When its first byte entered the link: seconds since the clock's zero."""
    delivered: float | None = None
    """When the first of it came out."""
    end: bool = False
    """The stream ended with it."""
    content: bytes = field(default=b"", repr=False)
    """Its first bytes, where the network tells them."""
    sites: CallSites = ()
    """The lines of the program that sent the first of them, where they are known."""


@dataclass(frozen=True)
class Counts:
    """The counts of one operation."""

    connections: int = 0
    """Connections opened in it."""
    bytes_up: int = 0
    """Bytes the client put on the link; TCP/IP headers are not counted."""
    bytes_down: int = 0
    """Bytes the server put on the link."""
    flights_up: int = 0
    """Messages with bytes, from the client."""
    flights_down: int = 0
    """Messages with bytes, from the server."""
    depth: int = 0
    """Greatest depth of a message delivered to the client, handshakes included."""
    depth_without_handshake: int = 0
    """The same, as if every connection had been open before."""
    packets_up: int = 0
    """Packet network: packets of any kind from the client, copies and acknowledgements too."""
    packets_down: int = 0
    """Packet network: packets from the server."""
    repeated: int = 0
    """Packet network: packets of both directions that carried bytes for the second time."""
    dropped: int = 0
    """Packet network: packets of both directions that the link lost."""
    not_tcp: int = 0
    """Packet network: packets of both directions that are no TCP (UDP, say), and so in no count of anything else."""
    seconds: float = 0.0
    """From the first thing the client did to the last message delivered to it."""
    application_rounds: float | None = None
    """Simulator: time the client waited / RTT of the link then, handshakes included. Exact on a link without rate,
    jitter and stall where no timer was waited for. None where that RTT is 0, or connections had links of different
    RTTs."""
    application_rounds_without_handshake: float | None = None
    """The same without the time spent connecting."""
    messages: tuple[Message, ...] = field(default=(), repr=False)
    """The first messages, in the order they were begun."""
    omitted: int = 0
    """Messages after those."""

    @property
    def rounds(self) -> int:
        """Round trips, handshakes included: a request on a fresh connection is 2, on a held one 1."""
        return -(-self.depth // 2)

    @property
    def rounds_without_handshake(self) -> int:
        """Round trips, as if every connection had been open before."""
        return -(-self.depth_without_handshake // 2)

    @property
    def handshake_rounds(self) -> int:
        """The round trips that opening connections added (side by side they add one together)."""
        return self.rounds - self.rounds_without_handshake

    @property
    def used(self) -> bool:
        """True if anything happened at all: a connection or a byte."""
        return bool(self.connections or self.bytes_up or self.bytes_down)


@dataclass(slots=True)
class _Side:
    """The deepest message that was delivered to one side."""

    depth: int = 0
    without_handshake: int = 0


class Counter:
    """Counts one operation. Each network tells it what enters and what leaves their links; times are nanoseconds."""

    def __init__(self) -> None:
        self._sides = {True: _Side(), False: _Side()}  # by direction they send
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
        """The client opens a connection."""
        self._begin(now)
        self._connections += 1
        if handshake:
            self._opened[connection] = self._sides[True].depth + 2

    def taken(self, message: Message) -> None:
        """Note that the server took what a client sent with a connection's first packet: only later bytes wait for the
        handshake."""
        self._taken[message.connection] = message.depth + 1

    def refused(self, message: Message) -> None:
        """Note that the server refused what a client sent with a connection's first packet: the client waits for a
        handshake and sends it again."""
        self._opened[message.connection] = message.depth + 1
        self._bytes[message.up] -= message.size
        self._flights[message.up] -= 1
        self._current.pop((message.connection, message.up), None)
        kept = [each for each in self._messages if each is not message]
        self._omitted -= len(kept) == len(self._messages)
        self._messages = kept

    def established(self, connection: int, now: int) -> None:
        """The answer to a handshake, or a refusal, reaches the client: what it does from now on may be because of it.

        Of a connection opened before this operation, or without a handshake, it is nothing.
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
        """Bytes enter the link, or the end of a stream does; `ended`: the receiver has ended its own side.

        `content` (those bytes) and `sites` (who sent them; asked once a message) are for display.

        Returns the message they belong to, to be given to `delivered`; None for an end that is no message.
        """
        self._begin(now)
        side = self._sides[up]
        before = self._opened.get(connection, 0)
        if before and not up:
            before += 1  # the server knows of the connection by the third packet of the handshake
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
        """Packets enter that carry bytes, none of them for the first time."""
        self._repeated += packets

    def delivered(self, message: Message, now: int) -> None:
        """Some of a message comes out at the remote end."""
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
        """The counts so far."""
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
