"""A model of TCP's congestion window for the simulated network: slow start by acknowledgements, and its restart.

The rules are the Linux kernel's while nothing is lost (slow start has no end then). Nagle's algorithm is off. Windows
are counted in bytes, where the kernel counts segments: many writes smaller than one, sent without waiting, fill the
kernel's window earlier than this one.
"""

from __future__ import annotations

from dataclasses import dataclass

from netem.units import nanoseconds

INITIAL_WINDOW = 10
"""Segments that a fresh connection sends before it must wait: RFC 6928, and Linux since 2.6.39."""

SEGMENT = 1448
"""Bytes of one segment in a 1500-byte Ethernet frame: 40 of IPv4 and TCP are off, and 12 of TCP's timestamps."""

MIN_VARIANCE = 0.2
"""Seconds that Linux adds to the round trip, at the least, for the timeout (TCP_RTO_MIN)."""


@dataclass(frozen=True)
class TcpModel:
    """The initial congestion window of a connection, and its restart after idleness."""

    initial_window: int = INITIAL_WINDOW
    """Segments."""
    segment: int = SEGMENT
    """Bytes."""
    idle_restart: bool = True
    """Halve the window for each timeout of idleness, as Linux does with tcp_slow_start_after_idle=1, its default."""

    def __post_init__(self) -> None:
        """Refuse a window that lets nothing through."""
        if self.initial_window < 1 or self.segment < 1:
            raise ValueError(f"initial window {self.initial_window} x {self.segment} bytes: expected 1 or more")

    @property
    def initial(self) -> int:
        """Bytes of the first flight."""
        return self.initial_window * self.segment

    def rounds(self, size: int) -> int:
        """Round trips until `size` bytes on a fresh connection are answered: ceil(log2(size / initial + 1))."""
        return (-(-size // self.initial)).bit_length()

    def begin(self, round_trip: int) -> CongestionWindow:
        """The window of one direction of a fresh connection; `round_trip` in nanoseconds."""
        return CongestionWindow(self, round_trip)


class CongestionWindow:
    """The bytes that one direction of one connection may have under way. It reads no clock; times are nanoseconds."""

    def __init__(self, model: TcpModel, round_trip: int) -> None:
        self._model = model
        self.measured(round_trip)
        self.size = model.initial
        """Bytes that may be sent and not yet acknowledged."""
        self._sent = 0
        self._acknowledged = 0
        self._sent_at = 0
        self._peak = 0
        self._round_ends = 0

    def measured(self, round_trip: int) -> None:
        """The round trip takes so long now; the timeout follows it."""
        self._timeout = round_trip + nanoseconds(MIN_VARIANCE)

    @property
    def _under_way(self) -> int:
        return self._sent - self._acknowledged

    def _begun(self, now: int) -> int:
        """The window with which a flight would begin now: halved, where the kernel has forgotten half of it."""
        size = self.size
        if self._model.idle_restart and self._sent and not self._under_way:
            idle = now - self._sent_at
            while (idle := idle - self._timeout) > 0 and size > self._model.initial:
                size = max(size // 2, self._model.initial)
        return size

    def room(self, now: int) -> int:
        """Bytes that may be sent now."""
        return max(0, self._begun(now) - self._under_way)

    def sent(self, now: int, size: int) -> None:
        """Bytes go out."""
        self.size = self._begun(now)
        self._sent += size
        self._sent_at = now
        if self._acknowledged >= self._round_ends:
            self._peak, self._round_ends = 0, self._sent
        self._peak = max(self._peak, self._under_way)

    def acknowledged(self, size: int) -> None:
        """The sender learns that so many bytes arrived: the window grows by them, if at least half of it was used."""
        self._acknowledged += size
        if self.size < 2 * self._peak:
            self.size += size
