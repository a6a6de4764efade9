"""How long a recorded command takes on another link.

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

SEGMENT = 1448
"""Bytes that a packet of 1,500 carries over IPv4, with TCP's timestamps."""
PACKET = 1500
WINDOW = 10 * SEGMENT
"""Bytes that Linux sends on a fresh connection before it waits (RFC 6928)."""

AROUND = SEGMENT
"""What goes before a request's body, and after it or that of an answer, is a packet each; the window counts packets."""
AT_ONCE = 14_000
"""Bytes of an answer that a server writes with its beginning and its end."""

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
"""Of a request: where the connection took no more bytes for so long, the server worked while they travelled."""

WHERE: dict[str, Part] = {
    Part.LINK: Part.LINK,
    Part.SEND: Part.SEND,
    Part.QUEUED: Part.SERVER,
    Part.LOCK: Part.SERVER,
    Part.DISK: Part.SERVER,
    Part.SERVER: Part.SERVER,
}
"""Part -> where it is spent; the others are spent on this machine."""


class Link(NamedTuple):
    """A link without loss."""

    rtt: float
    """Seconds."""
    rate: float = 0.0
    """Bytes a second; 0: any number."""


def predicted(trace: Trace, link: Link) -> float:
    """The seconds that the command of a trace would take on a link."""
    requests = sorted((each for each in trace.requests if not _is_relayed(each, trace)), key=lambda each: each.start)
    outside = 0
    spent: list[Counter[str]] = [Counter() for _ in requests]
    """Microseconds while each was under way: on the link, at the server while nothing else was done, and here."""
    for piece in pieces(trace):
        index = _during(requests, piece)
        if index is not None:
            spent[index][WHERE.get(piece.part, Part.LOCAL)] += piece.end - piece.start
        elif not is_handshake(piece):
            outside += piece.end - piece.start
    opened = sorted(each.start for each in trace.spans if is_handshake(each))
    seconds = outside / 1e6 + len(opened) * link.rtt
    up, down = _Direction(link), _Direction(link)
    for request, its in zip(requests, spent, strict=True):
        while opened and opened[0] <= request.start:
            opened.pop(0)
            up, down = _Direction(link), _Direction(link)
        travels = up.seconds(sent(request.up)) + down.seconds(received(request.down))
        served = 0 if its[Part.SEND] > its.total() * FULL else its[Part.SERVER]
        seconds += link.rtt + max(travels, its[Part.LOCAL] / 1e6) + served / 1e6
    asking = {each.process for each in requests}
    more = sum(each.round_trips for each in trace.ends if each.process in asking) - len(requests)
    return seconds + max(0, more) * link.rtt


def round_trip(trace: Trace) -> float:
    """The seconds of a round trip on the link of a trace, at most; 0 where no request was made."""
    shakes = [each.end - each.start for each in trace.spans if is_handshake(each)]
    answers = [max(0, each.answered - each.start - each.in_server) for each in trace.requests if each.answered]
    return min([*shakes, *answers], default=0) / 1e6


def opening(trace: Trace) -> tuple[int, int]:
    """The round trips, and their microseconds, in which bodies waited until the window of a fresh connection was open;
    none where the time on the link was twice as long: its rate is what took that."""
    rtt = round_trip(trace)
    link = Link(rtt)
    micro = 0.0
    up, down = _Direction(link), _Direction(link)
    opened = sorted(each.start for each in trace.spans if is_handshake(each))
    for request in sorted(trace.requests, key=lambda each: each.start):
        if not opened or opened[0] > request.start:
            continue  # The connection was open before: nothing says how far.
        up, down = _Direction(link), _Direction(link)
        opened = [each for each in opened if each > request.start]
        waited = up.seconds(sent(request.up)) + down.seconds(received(request.down))
        took = (request.end - request.start - request.in_server) / 1e6 - rtt
        if waited and took <= 2 * waited:
            micro += min(waited, took) * 1e6
    return math.ceil(micro / 1e6 / rtt) if micro else 0, round(micro)


class _Direction:
    """One direction of a connection, whose window opens as bytes are sent."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._window = WINDOW
        self._since = 0.0
        """Seconds since slow start ended early."""
        gap = min(max(link.rtt / 8, LEAST_RISE), MOST_RISE)
        self._ends_early = 2 * self._time(SEGMENT) > gap

    def seconds(self, size: int) -> float:
        """How long the link takes so many bytes, until the last has left."""
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


def sent(size: int) -> int:
    """Bytes of a request, with the rests of its packets."""
    return size + 2 * AROUND if size > SEGMENT else size


def received(size: int) -> int:
    """Bytes of an answer, with the rests of its packets."""
    return size + AROUND if size > AT_ONCE else size


def is_handshake(span: Piece | object) -> bool:
    """Whether a span is a round trip in which a connection is opened."""
    return getattr(span, "part", "") == Part.CONNECT and getattr(span, "name", "") in HANDSHAKES


def _is_relayed(request: RequestEnded, trace: Trace) -> bool:
    """Whether a process of this machine answered it, by requests of its own."""
    return any(
        each.process != request.process and request.start <= each.start and each.end <= request.end
        for each in trace.requests
    )


def _during(requests: list[RequestEnded], piece: Piece) -> int | None:
    """The request during which a piece of the wait was; the first of several."""
    middle = (piece.start + piece.end) // 2
    return next((number for number, each in enumerate(requests) if each.start <= middle <= each.end), None)
