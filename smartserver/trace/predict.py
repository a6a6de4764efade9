"""Predicts the time that a recorded command takes on another link.

The work of the machines takes as long as it took. The time on the link follows from its round-trip time and its rate.
Each request costs a round trip, each handshake one more. Bytes cost their time at the rate, and the round trips in
which TCP's window opens: Linux sends 10 segments on a fresh connection and then twice as many each round trip; on a
slow link, it ends this slow start early, and the window then grows as CUBIC requires. Work on this machine during a
request goes on while its bytes travel. Loss, full buffers and a window that closes on an idle connection are left out.
The handshakes of ssh last as long as they did.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

from smartserver.spans import Part
from smartserver.trace.events import RequestEnded
from smartserver.trace.wait import Piece, Trace, pieces
from smartserver.wire.limits import INITIAL_WINDOW

SEGMENT = 1448
"""Bytes that a packet of 1,500 carries over IPv4, with TCP's timestamps."""
PACKET = 1500

LEAST_RISE, MOST_RISE = 0.004, 0.016
"""Linux ends slow start early if the delay of acknowledgements grows by an eighth of the round trip, limited to this
range of seconds (HyStart). Two packets that are acknowledged together have this delay below 1.5 Mbit/s."""
EARLY = 49 * SEGMENT
"""The window at which slow start ends early: Linux checks from 16 segments on, after 8 answers of a round."""
CUBIC = 0.4
"""After this early end, the window grows by this number of segments, times the cube of the seconds since (RFC 9438)."""

HANDSHAKES = ("TCP", "TLS")
"""The names of spans of a connection that are one round trip each."""

FULL = 0.1
"""If the connection accepted no bytes for more than this share of a request's time, the server is assumed to have
worked in that time."""

WHERE: dict[str, Part] = {
    Part.LINK: Part.LINK,
    Part.SEND: Part.SEND,
    Part.QUEUED: Part.SERVER,
    Part.DISK: Part.SERVER,
    Part.SERVER: Part.SERVER,
}
"""The place where the time of a part is spent; all other parts are spent on this machine."""


class LinkEstimate(NamedTuple):
    """A link without loss."""

    rtt: float
    """The round-trip time in seconds."""
    rate: float = 0.0
    """Bytes a second; 0 means no limit."""


def predicted(trace: Trace, link: LinkEstimate) -> float:
    """Return the seconds that the command of a trace would take on a link."""
    requests = _direct_requests(trace)
    outside = 0
    spent: list[Counter[str]] = [Counter() for _ in requests]
    """Microseconds during each request: on the link, at the server while this machine did nothing, and on this
    machine."""
    for piece in pieces(trace):
        index = _during(requests, piece)
        if index is not None:
            spent[index][WHERE.get(piece.part, Part.LOCAL)] += piece.end - piece.start
        elif not is_handshake(piece):
            outside += piece.end - piece.start
    opened = _handshakes(trace)
    seconds = outside / 1e6 + len(opened) * link.rtt
    up, down = _Direction(link), _Direction(link)
    for request, its in zip(requests, spent, strict=True):
        while opened and opened[0] <= request.start:
            opened.pop(0)
            up, down = _Direction(link), _Direction(link)
        travels = up.seconds(request_size(request)) + down.seconds(answer_size(request))
        served = 0 if its[Part.SEND] > its.total() * FULL else its[Part.SERVER]
        seconds += link.rtt + max(travels, its[Part.LOCAL] / 1e6) + served / 1e6
    asking = {each.process for each in requests}
    more = sum(end.round_trips for end in trace.ends if end.process in asking) - len(requests)
    return seconds + max(0, more) * link.rtt


def round_trip(trace: Trace) -> float:
    """Return an upper bound, in seconds, of the round-trip time of a trace's link; 0 if no handshake and no answer was
    recorded."""
    shakes = [span.end - span.start for span in trace.spans if is_handshake(span)]
    answers = [max(0, each.answered - each.start - each.in_server) for each in trace.requests if each.answered]
    return min([*shakes, *answers], default=0) / 1e6


def window_opening(trace: Trace) -> tuple[int, int]:
    """Return the number of round trips in which bodies waited for TCP's window on connections of this trace, and the
    microseconds of these round trips.

    A request whose body took more than twice that time does not count, because then the rate limited it.
    """
    rtt = round_trip(trace)
    directions: tuple[_Direction, _Direction] | None = None
    seconds = 0.0
    opened = _handshakes(trace)
    for request in _direct_requests(trace):
        while opened and opened[0] <= request.start:
            opened.pop(0)
            directions = _Direction(LinkEstimate(rtt)), _Direction(LinkEstimate(rtt))
        if directions is None:
            continue  # The connection is older than the trace, so its window is not known.
        up, down = directions
        waited = up.seconds(request_size(request)) + down.seconds(answer_size(request))
        took = max(0.0, (request.end - request.start - request.in_server) / 1e6 - rtt)
        if took <= 2 * waited:
            seconds += min(waited, took)
    return math.ceil(round(seconds / rtt, 3)) if seconds else 0, round(seconds * 1e6)


def _direct_requests(trace: Trace) -> list[RequestEnded]:
    """Return the requests in order, except requests that a local process answered by making requests itself."""
    return sorted((each for each in trace.requests if not _is_relayed(each, trace)), key=lambda each: each.start)


def _handshakes(trace: Trace) -> list[int]:
    """Return the time at which each handshake began, in order."""
    return sorted(span.start for span in trace.spans if is_handshake(span))


class _Direction:
    """One direction of a connection, whose window opens as bytes are sent."""

    def __init__(self, link: LinkEstimate) -> None:
        self._link = link
        self._window = INITIAL_WINDOW
        self._since = 0.0
        """Seconds since slow start ended early."""
        gap = min(max(link.rtt / 8, LEAST_RISE), MOST_RISE)
        self._ends_early = 2 * self._time(SEGMENT) > gap

    def seconds(self, size: int) -> float:
        """Return the seconds until the last of `size` bytes has been sent."""
        waited = 0.0
        while size > self._window and self._time(self._window) < self._link.rtt:
            size -= self._window
            waited += self._link.rtt
            self._grow()
        if 2 * size > self._window and not self._ends_early:
            self._window += size
        return waited + self._time(size)

    def _grow(self) -> None:
        if not self._ends_early or 2 * self._window < EARLY:
            self._window *= 2
            return
        self._window = round(EARLY + CUBIC * self._since**3 * SEGMENT)
        self._since += self._link.rtt

    def _time(self, size: int) -> float:
        return size * PACKET / SEGMENT / self._link.rate if self._link.rate else 0.0


def request_size(request: RequestEnded) -> int:
    """Return the bytes of a request on the wire. With a body, REQUEST and END are sent in separate packets. They count
    as full packets, because the window counts packets."""
    return request.up + 2 * SEGMENT if request.up > SEGMENT else request.up


def answer_size(request: RequestEnded) -> int:
    """Return the bytes of an answer on the wire, including its trace. The END of a long answer has its own packet."""
    return request.down + SEGMENT if request.down > INITIAL_WINDOW else request.down


def is_handshake(span: Piece | object) -> bool:
    """Return True if a span is a round trip in which a connection is opened."""
    return getattr(span, "part", "") == Part.CONNECT and getattr(span, "name", "") in HANDSHAKES


def _is_relayed(request: RequestEnded, trace: Trace) -> bool:
    """Return True if a process of this machine answered a request by requests of its own."""
    return any(
        each.process != request.process and request.start <= each.start and each.end <= request.end
        for each in trace.requests
    )


def _during(requests: list[RequestEnded], piece: Piece) -> int | None:
    """Return the index of the first request during which a piece of the wait was, or None."""
    middle = (piece.start + piece.end) // 2
    return next((number for number, each in enumerate(requests) if each.start <= middle <= each.end), None)
