"""A model of TCP's congestion window for the simulated network: slow start by acknowledgements, and its restart.

The rules are the Linux kernel's as long as nothing is lost (slow start never ends then). Nagle's algorithm is off.
Windows are counted in bytes, while the kernel counts segments. So many small writes without waiting fill the kernel's
window earlier than this one.
"""

from __future__ import annotations

from dataclasses import dataclass

from netem.units import nanoseconds

INITIAL_WINDOW = 10
"""The number of segments that a fresh connection sends before it must wait: RFC 6928, and Linux since 2.6.39."""

SEGMENT = 1448
"""Bytes of one segment in a 1500-byte Ethernet frame, without 40 bytes of IPv4 and TCP and 12 of TCP's timestamps."""

MIN_VARIANCE = 0.2
"""The least seconds that Linux adds to the round trip for the timeout (TCP_RTO_MIN)."""


@dataclass(frozen=True)
class TcpModel:
    """The initial congestion window of a connection, and its restart after idleness."""

    initial_window: int = INITIAL_WINDOW
    """The first window in segments."""
    segment: int = SEGMENT
    """Bytes of a segment."""
    idle_restart: bool = True
    """True if each idle timeout halves the window, as in Linux with tcp_slow_start_after_idle=1, its default."""

    def __post_init__(self) -> None:
        """Refuse an empty window."""
        if self.initial_window < 1 or self.segment < 1:
            raise ValueError(f"initial window {self.initial_window} x {self.segment} bytes: expected 1 or more")

    @property
    def initial(self) -> int:
        """The bytes of the first flight."""
        return self.initial_window * self.segment

    def rounds(self, size: int) -> int:
        """Return the round trips of `size` bytes with an answer on a new connection: ceil(log2(size / initial + 1))."""
        return (-(-size // self.initial)).bit_length()

    def begin(self, round_trip: int) -> CongestionWindow:
        """Return the window of one direction of a new connection. `round_trip` is in nanoseconds."""
        return CongestionWindow(self, round_trip)


class CongestionWindow:
    """The congestion window of one direction of one connection. It reads no clock; times are nanoseconds."""

    def __init__(self, model: TcpModel, round_trip: int) -> None:
        self._model = model
        self.measured(round_trip)
        self.size = model.initial
        """The most bytes that may be sent and not yet acknowledged."""
        self._sent = 0
        self._acknowledged = 0
        self._sent_at = 0
        self._peak = 0
        self._round_ends = 0

    def measured(self, round_trip: int) -> None:
        """Set the idle timeout from a measured round trip in nanoseconds."""
        self._timeout = round_trip + nanoseconds(MIN_VARIANCE)

    @property
    def _under_way(self) -> int:
        return self._sent - self._acknowledged

    def _begun(self, now: int) -> int:
        """Return the window with which a flight would begin now, halved for each idle timeout."""
        size = self.size
        if self._model.idle_restart and self._sent and not self._under_way:
            idle = now - self._sent_at
            while (idle := idle - self._timeout) > 0 and size > self._model.initial:
                size = max(size // 2, self._model.initial)
        return size

    def room(self, now: int) -> int:
        """Return the number of bytes that may be sent now."""
        return max(0, self._begun(now) - self._under_way)

    def sent(self, now: int, size: int) -> None:
        """Record that `size` bytes are sent."""
        self.size = self._begun(now)
        self._sent += size
        self._sent_at = now
        if self._acknowledged >= self._round_ends:
            self._peak, self._round_ends = 0, self._sent
        self._peak = max(self._peak, self._under_way)

    def acknowledged(self, size: int) -> None:
        """Record that `size` more bytes were acknowledged. The window grows by `size` if more than half of it was
        used."""
        self._acknowledged += size
        if self.size < 2 * self._peak:
            self.size += size
