"""The link: what it is made of, and the queue of one direction of one connection on it. It reads no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from netem.effects import Delay, Effect, Ending, Parcel, Rate, Stage
from netem.tcp_model import TcpModel
from netem.units import NEVER, nanoseconds

BUFFER = 128 * 1024
"""Bytes a sender may have in its socket buffer, not yet on the link, as with TCP_NOTSENT_LOWAT of 128 KiB. What is on
the way is not among them, so it costs no throughput."""

WINDOW = 64 * 1024 * 1024
"""Bytes sent and not yet taken by the receiver, at most: a link of 1 Gbit/s and 0.5 s is full with this."""


@dataclass(frozen=True)
class Link:
    """A symmetric link, and what else is done to each direction of it."""

    rtt: float
    """Seconds of one round trip: half each way."""
    rate: float | None = None
    """Bytes a second, each way and for each connection; None: no limit."""
    up: Sequence[Effect] = ()
    """Further effects from client to server: those on the way after the rate, all others before it, each in order."""
    down: Sequence[Effect] = ()
    """The same from server to client."""
    buffer: int = BUFFER
    """Bytes a sender may have waiting for the link."""
    window: int = WINDOW
    """Bytes of one direction sent and not yet taken by the receiver."""
    tcp: TcpModel | None = None
    """The congestion window of each direction of a connection made on this link, in the simulator; None: none."""
    seed: int | str = 0
    """The seed of all that happens by chance. Each effect has a chance of its own in each direction of each
    connection."""

    def __post_init__(self) -> None:
        """Refuse a link that cannot be."""
        nanoseconds(self.rtt)
        if self.buffer < 1 or self.window < 1:
            raise ValueError(f"buffer {self.buffer} and window {self.window} bytes: expected 1 or more")
        self._effects(self.up)

    def check_streams(self, *, simulated: bool = False) -> None:
        """Refuse a link with something that means nothing where streams of bytes pass, in simulator and proxy."""
        if self.tcp is not None and not simulated:
            raise ValueError("a link with TCP's model, and here are sockets: only the simulated network has one")
        for effect in (*self.up, *self.down):
            effect.check_streams()

    def check_packets(self) -> None:
        """Refuse a link with something that means nothing where packets pass."""
        if self.tcp is not None:
            raise ValueError("a link with TCP's model, and here are packets: only the simulated network has one")
        if (self.buffer, self.window) != (BUFFER, WINDOW):
            raise ValueError(
                f"a link with a buffer of {self.buffer} and a window of {self.window} bytes, and here those are the "
                "kernel's: set net.ipv4.tcp_wmem and net.ipv4.tcp_rmem"
            )
        for effect in (*self.up, *self.down):
            effect.check_packets()

    def _effects(self, extra: Iterable[Effect]) -> list[Effect]:
        # Bytes wait at the sender to get onto the link, and are then under way.
        rate = [] if self.rate is None else [Rate(self.rate)]
        return sorted([*extra, *rate, Delay(self.rtt / 2)], key=lambda effect: effect.on_the_way)

    def _seeded(self, stream: str, *, up: bool) -> list[Effect]:
        stream = f"{self.seed} {'up' if up else 'down'} {stream}"
        extra = self.up if up else self.down
        return self._effects(effect.seeded(f"{stream} {place}") for place, effect in enumerate(extra))

    def lane(self, *, up: bool, connection: int) -> Lane:
        """A fresh queue for one direction of the connection with that number."""
        return Lane(self, up=up, connection=connection)

    def stages(self, *, up: bool, connection: int) -> list[Stage]:
        """The stages that the bytes of one direction of the connection with that number pass."""
        return [effect.begin() for effect in self._seeded(str(connection), up=up)]

    def packet_stages(self, *, up: bool) -> list[Stage]:
        """The stages that the packets of one direction pass, all connections together."""
        return [effect.begin_packets() for effect in self._seeded("packets", up=up)]

    @property
    def trains(self) -> bool:
        """True if packets may pass as trains of segments: nothing is done to them one by one."""
        return not any(effect.splits_trains for effect in (*self._effects(self.up), *self.down))

    def one_way(self, *, up: bool) -> int:
        """Nanoseconds that one byte on an empty link takes."""
        extra = self.up if up else self.down
        return nanoseconds(self.rtt / 2) + sum(nanoseconds(e.seconds) for e in extra if isinstance(e, Delay))

    @property
    def round_trip(self) -> int:
        """Nanoseconds of one round trip, the extra delays of both directions included."""
        return self.one_way(up=True) + self.one_way(up=False)


class Lane:
    """One direction of one connection: what is on the way, first in, first out."""

    def __init__(self, link: Link, *, up: bool, connection: int) -> None:
        self._up = up
        self._connection = connection
        self._use(link)
        self._queue: deque[Parcel] = deque()
        self._waiting: deque[tuple[int, int]] = deque()
        self._unsent = 0
        self._at = 0
        self.undelivered = 0
        """Bytes that entered and were not taken out."""

    def _use(self, link: Link) -> None:
        self._stages = link.stages(up=self._up, connection=self._connection)
        self._buffer = link.buffer
        self._window = link.window

    def enter(
        self, now: int, content: bytes | memoryview, ending: Ending = Ending.MORE, tag: object = None
    ) -> list[Parcel]:
        """Let bytes (and what follows them) onto the link at time `now`; the parcels they became."""
        parcels = [Parcel(content, now, now, ending, tag)]
        for stage in self._stages:
            parcels = [out for parcel in parcels for out in stage(parcel)]
        for parcel in parcels:
            self._at = parcel.at = max(self._at, parcel.at)
            self.undelivered += len(parcel.content)
            if parcel.left > now and parcel.content:
                self._waiting.append((parcel.left, len(parcel.content)))
                self._unsent += len(parcel.content)
        self._queue.extend(parcels)
        return parcels

    def change(self, now: int, link: Link) -> list[Parcel]:
        """Let another link do the rest; effects that count bytes begin anew.

        What is on the way comes out as it would have. What was stuck is sent again: those parcels are returned.
        """
        self._use(link)
        stuck = [parcel for parcel in self._queue if parcel.stuck]
        self._queue = deque(parcel for parcel in self._queue if not parcel.stuck)
        self._at = self._queue[-1].at if self._queue else now
        # Not those of what is stuck, which may have left: they wait anew.
        self._waiting = deque((p.left, len(p.content)) for p in self._queue if p.left > now and p.content)
        self._unsent = sum(size for _, size in self._waiting)
        self.undelivered = sum(len(parcel.content) for parcel in self._queue)
        return [sent for old in stuck for sent in self.enter(now, old.content, old.ending, old.tag)]

    @property
    def next_at(self) -> int:
        """When the next parcel comes out; `NEVER` when there is none, or it is stuck."""
        return self._queue[0].at if self._queue else NEVER

    def take(self) -> Parcel:
        """The next parcel, taken out of the queue."""
        parcel = self._queue.popleft()
        self.undelivered -= len(parcel.content)
        return parcel

    def clear(self) -> None:
        """Drop what is on the way."""
        self._queue.clear()
        self._waiting.clear()
        self._unsent = self.undelivered = 0

    def unsent(self, now: int) -> int:
        """Bytes still in the sender's buffer."""
        while self._waiting and self._waiting[0][0] <= now:
            self._unsent -= self._waiting.popleft()[1]
        return self._unsent

    def room(self, now: int) -> int:
        """Bytes that may enter: what buffer and window leave."""
        return max(0, min(self._buffer - self.unsent(now), self._window - self.undelivered))

    def next_left(self, now: int) -> int:
        """When the next bytes leave the sender's buffer; `NEVER` when none will."""
        self.unsent(now)
        return self._waiting[0][0] if self._waiting else NEVER
