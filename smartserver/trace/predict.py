"""A prediction of the time that a recorded command takes on another link.

What the machines do takes as long as it took; what the link does follows from its round-trip time and its rate. Each
request costs a round trip, each handshake one more. Bytes cost their time at the rate, and the round trips in which
TCP's window opens: Linux sends 10 segments on a fresh connection and then twice as many each round trip; where packets
are slow it ends that early, and grows as CUBIC does. Work on this
machine during a request goes on while its bytes travel. Loss, full buffers and a window that closes when a connection
was idle are left out; so are the handshakes of ssh, which last as long as they did.
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
"""Seconds by which answers are late when Linux ends slow start (HyStart): an eighth of the round trip within these. Two
packets that are acknowledged together are so late below 1.5 Mbit/s."""
EARLY = 49 * SEGMENT
"""The window then: it is looked at from 16 segments on, after 8 answers of a round."""
CUBIC = 0.4
"""Segments by which the window grows from then on, times the cube of the seconds (RFC 9438)."""

HANDSHAKES = ("TCP", "TLS")
"""Spans of a connection that are one round trip each."""

FULL = 0.1
"""The share of a request's time in which the connection took no more bytes, above which the server worked meanwhile."""

WHERE: dict[str, Part] = {
    Part.LINK: Part.LINK,
    Part.SEND: Part.SEND,
    Part.QUEUED: Part.SERVER,
    Part.DISK: Part.SERVER,
    Part.SERVER: Part.SERVER,
}
"""Part -> where it is spent; the others are spent on this machine."""


class LinkEstimate(NamedTuple):
    """A link without loss."""

    rtt: float
    """Seconds."""
    rate: float = 0.0
    """Bytes a second; 0: any number."""


def predicted(trace: Trace, link: LinkEstimate) -> float:
    """The seconds that the command of a trace would take on a link."""
    requests = _direct_requests(trace)
    outside = 0
    spent: list[Counter[str]] = [Counter() for _ in requests]
    """Microseconds while each was under way: on the link, at the server while nothing else was done, and here."""
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
    """The seconds of a round trip on the link of a trace, at most; 0 where no request was made."""
    shakes = [span.end - span.start for span in trace.spans if is_handshake(span)]
    answers = [max(0, each.answered - each.start - each.in_server) for each in trace.requests if each.answered]
    return min([*shakes, *answers], default=0) / 1e6


def window_opening(trace: Trace) -> tuple[int, int]:
    """The round trips in which bodies waited for TCP's window on connections of this trace, and their microseconds.

    None are counted of a request whose body was twice as long on the link: its rate is what took that.
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
            continue  # The connection was open before: nothing says how far.
        up, down = directions
        waited = up.seconds(request_size(request)) + down.seconds(answer_size(request))
        took = max(0.0, (request.end - request.start - request.in_server) / 1e6 - rtt)
        if took <= 2 * waited:
            seconds += min(waited, took)
    return math.ceil(round(seconds / rtt, 3)) if seconds else 0, round(seconds * 1e6)


def _direct_requests(trace: Trace) -> list[RequestEnded]:
    """In order, without those that a process of this machine answered by requests of its own."""
    return sorted((each for each in trace.requests if not _is_relayed(each, trace)), key=lambda each: each.start)


def _handshakes(trace: Trace) -> list[int]:
    """When each began, in order."""
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
        """The seconds that the link takes for so many bytes, until the last has left."""
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
    """Bytes on the way up. REQUEST and END of one with a body travel in packets of their own, which count as full ones:
    the window counts packets."""
    return request.up + 2 * SEGMENT if request.up > SEGMENT else request.up


def answer_size(request: RequestEnded) -> int:
    """Bytes on the way down, with what a trace adds. END of a long answer travels in a packet of its own."""
    return request.down + SEGMENT if request.down > INITIAL_WINDOW else request.down


def is_handshake(span: Piece | object) -> bool:
    """True if a span is a round trip in which a connection is opened."""
    return getattr(span, "part", "") == Part.CONNECT and getattr(span, "name", "") in HANDSHAKES


def _is_relayed(request: RequestEnded, trace: Trace) -> bool:
    """True if a process of this machine answered it, by requests of its own."""
    return any(
        each.process != request.process and request.start <= each.start and each.end <= request.end
        for each in trace.requests
    )


def _during(requests: list[RequestEnded], piece: Piece) -> int | None:
    """The request during which a piece of the wait was; the first of several."""
    middle = (piece.start + piece.end) // 2
    return next((number for number, each in enumerate(requests) if each.start <= middle <= each.end), None)
