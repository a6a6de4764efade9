"""The link: its properties, and the queue of one direction of one connection. The caller passes the time; no clock is
read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from netem.effects import Delay, Effect, Ending, Parcel, Rate, Stage
from netem.tcp_model import TcpModel
from netem.units import NEVER, nanoseconds

BUFFER = 128 * 1024
"""The most bytes in a sender's socket buffer that are not yet on the link, as with TCP_NOTSENT_LOWAT of 128 KiB. Bytes
in transit do not count, so the limit costs no throughput."""

WINDOW = 64 * 1024 * 1024
"""The most bytes that are sent and not yet read by the receiver, enough to fill a link of 1 Gbit/s and 0.5 s."""


@dataclass(frozen=True)
class Link:
    """A symmetric link, and further effects on each direction of it."""

    rtt: float
    """Seconds of one round trip, half of them each way."""
    rate: float | None = None
    """Bytes a second, in each direction and for each connection. None means no limit."""
    up: Sequence[Effect] = ()
    """Further effects from client to server. Effects with `on_the_way` act after the rate, all others before it."""
    down: Sequence[Effect] = ()
    """Further effects from server to client, in the same order."""
    buffer: int = BUFFER
    """The most bytes of a sender that wait for the link."""
    window: int = WINDOW
    """The most bytes of one direction that are sent but not yet read by the receiver."""
    tcp: TcpModel | None = None
    """The model of TCP's congestion window, in the simulator only. None means that the window has no limit."""
    seed: int | str = 0
    """The seed of all random numbers. Each effect has its own random numbers in each direction of each connection."""

    def __post_init__(self) -> None:
        """Raise `ValueError` if a property of the link is out of range."""
        nanoseconds(self.rtt)
        if self.buffer < 1 or self.window < 1:
            raise ValueError(f"buffer {self.buffer} and window {self.window} bytes: expected 1 or more")
        self._effects(self.up)

    def check_streams(self, *, simulated: bool = False) -> None:
        """Raise `ValueError` if streams of bytes cannot pass the link. `simulated`: True in the simulator, False in the
        proxy."""
        if self.tcp is not None and not simulated:
            raise ValueError("a link with TCP's model, and here are sockets: only the simulated network has one")
        for effect in (*self.up, *self.down):
            effect.check_streams()

    def check_packets(self) -> None:
        """Raise `ValueError` if the packet network cannot emulate the link."""
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
        # Bytes first wait at the sender for the link, and then are on the way.
        rate = [] if self.rate is None else [Rate(self.rate)]
        return sorted([*extra, *rate, Delay(self.rtt / 2)], key=lambda effect: effect.on_the_way)

    def _seeded(self, stream: str, *, up: bool) -> list[Effect]:
        stream = f"{self.seed} {'up' if up else 'down'} {stream}"
        extra = self.up if up else self.down
        return self._effects(effect.seeded(f"{stream} {place}") for place, effect in enumerate(extra))

    def lane(self, *, up: bool, connection: int) -> Lane:
        """Return a new queue for one direction of the connection with that number."""
        return Lane(self, up=up, connection=connection)

    def stages(self, *, up: bool, connection: int) -> list[Stage]:
        """Return the stages that bytes pass in one direction of the connection with that number."""
        return [effect.begin() for effect in self._seeded(str(connection), up=up)]

    def packet_stages(self, *, up: bool) -> list[Stage]:
        """Return the stages that the packets of all connections pass in one direction."""
        return [effect.begin_packets() for effect in self._seeded("packets", up=up)]

    @property
    def trains(self) -> bool:
        """True if packets may pass as trains of segments, because no effect needs single packets."""
        return not any(effect.splits_trains for effect in (*self._effects(self.up), *self.down))

    def one_way(self, *, up: bool) -> int:
        """Return the nanoseconds that one byte takes on an empty link in one direction."""
        extra = self.up if up else self.down
        return nanoseconds(self.rtt / 2) + sum(nanoseconds(e.seconds) for e in extra if isinstance(e, Delay))

    @property
    def round_trip(self) -> int:
        """The nanoseconds of one round trip, including the extra delays of both directions."""
        return self.one_way(up=True) + self.one_way(up=False)


class Lane:
    """The queue of the bytes in transit in one direction of one connection, first in, first out."""

    def __init__(self, link: Link, *, up: bool, connection: int) -> None:
        self._up = up
        self._connection = connection
        self._use(link)
        self._queue: deque[Parcel] = deque()
        self._waiting: deque[tuple[int, int]] = deque()
        self._unsent = 0
        self._at = 0
        self.undelivered = 0
        """The number of bytes in the queue."""

    def _use(self, link: Link) -> None:
        self._stages = link.stages(up=self._up, connection=self._connection)
        self._buffer = link.buffer
        self._window = link.window

    def enter(
        self, now: int, content: bytes | memoryview, ending: Ending = Ending.MORE, tag: object = None
    ) -> list[Parcel]:
        """Put bytes, and the ending that follows them, onto the link at time `now`. Return the parcels that were
        created."""
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
        """Replace the link. Effects that count bytes start again from 0.

        Parcels in transit are delivered as before. Stuck parcels are sent again; return their new parcels.
        """
        self._use(link)
        stuck = [parcel for parcel in self._queue if parcel.stuck]
        self._queue = deque(parcel for parcel in self._queue if not parcel.stuck)
        self._at = self._queue[-1].at if self._queue else now
        # Without stuck parcels, which may have left the sender's buffer: they enter again below.
        self._waiting = deque((p.left, len(p.content)) for p in self._queue if p.left > now and p.content)
        self._unsent = sum(size for _, size in self._waiting)
        self.undelivered = sum(len(parcel.content) for parcel in self._queue)
        return [sent for old in stuck for sent in self.enter(now, old.content, old.ending, old.tag)]

    @property
    def next_at(self) -> int:
        """The time when the next parcel is delivered; `NEVER` if the queue is empty or its first parcel is stuck."""
        return self._queue[0].at if self._queue else NEVER

    def take(self) -> Parcel:
        """Remove the next parcel from the queue and return it."""
        parcel = self._queue.popleft()
        self.undelivered -= len(parcel.content)
        return parcel

    def clear(self) -> None:
        """Drop all bytes in transit."""
        self._queue.clear()
        self._waiting.clear()
        self._unsent = self.undelivered = 0

    def unsent(self, now: int) -> int:
        """Return the number of bytes that are still in the sender's buffer."""
        while self._waiting and self._waiting[0][0] <= now:
            self._unsent -= self._waiting.popleft()[1]
        return self._unsent

    def room(self, now: int) -> int:
        """Return the number of bytes that may enter, limited by buffer and window."""
        return max(0, min(self._buffer - self.unsent(now), self._window - self.undelivered))

    def next_left(self, now: int) -> int:
        """Return the time when the next bytes leave the sender's buffer; `NEVER` if it is empty."""
        self.unsent(now)
        return self._waiting[0][0] if self._waiting else NEVER
