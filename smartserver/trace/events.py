"""Events of a trace: one JSON object a line, in the order in which things ended.

Times are whole microseconds of the system's monotonic clock, which all processes of a machine share. Fields are only
ever added; a reader skips those and events that it does not know. `make docs` makes `trace-schema.json` from this
file.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from smartserver.wire.messages import ServerSpan

VERSION = 1
"""The version of the format. It changes when a field is removed or means something else."""


TraceId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
"""The id that all processes of a trace share: the trace-id of W3C Trace Context."""


class Event(msgspec.Struct, tag_field="event", omit_defaults=True):
    """A line. `process`: the number of the process that it is about."""

    process: int


class ProcessBegan(Event, tag="process"):
    """A process records from now on."""

    version: int
    program: str
    trace: TraceId
    began: int
    is_host: bool = False
    """True if it is a program of others, in which our code is a guest: what no span covers is that program's work."""
    started: int | None = None
    """When the system started it, within 10 ms; left out where the system does not tell."""
    epoch: int = 0
    """Microseconds of the Unix epoch at which the monotonic clock was 0."""


class SpanEnded(Event, tag="span"):
    """Time that one process spent on one thing. Those of a process nest."""

    part: str
    start: int
    end: int
    name: str = ""
    count: int = 1
    """The number of spans in a row that this one stands for."""
    cpu: int = 0
    """Microseconds of processor time of the process, its children left out."""


class RequestEnded(Event, tag="request"):
    """A request and its answer, with the body of either."""

    verbs: list[str]
    path: str
    start: int
    end: int
    result: str
    arguments: list[str] = []
    answered: int = 0
    """When the first part of its answer came; 0: none did."""
    up: int = 0
    """Bytes on the wire."""
    down: int = 0
    in_server: int = 0
    """Microseconds that the server worked on it, by its own count."""
    server: list[ServerSpan] = []
    counts: dict[str, int] = {}
    """The server's counts of it (`smartserver.meters`), and as `tcp_` those of its kernel."""
    where: str = ""
    """The lines of the program that made a VFS call, the innermost first."""


class FindingMade(Event, tag="finding"):
    """Something that requests cost and need not have: a behaviour of `trace.bans`."""

    behaviour: str
    verb: str
    why: str
    cost: str
    """The thing that could be saved: the `request`, the `connection` opened for it, or a `body`, of it or its
    answer."""
    requests: list[int]
    """When each of them started: their `start`."""
    where: str
    """The lines of the program that made the last of them, the innermost first."""
    share: float = 1.0
    """The part of a `body` that was needless."""


class LinkMeasured(Event, tag="link"):
    """A connection over TCP, as the kernel of the client saw it (tcp(7), TCP_INFO). Microseconds, since it was made."""

    rtt: int
    """Smoothed."""
    least_rtt: int
    window: int
    """Packets that may be on their way (cwnd)."""
    packet: int
    """Bytes of a packet (MSS)."""
    packets: int
    """Sent with data."""
    again: int
    """Packets that were sent again."""
    by_window: int
    """Time in which the peer's receive window was full."""
    delays: int = 0
    """1 if the system delays small packets (Nagle's algorithm)."""


class ProcessEnded(Event, tag="end"):
    """A process records no more."""

    at: int
    round_trips: int
    connections: int
    up: int
    down: int


class CommandEnded(Event, tag="command"):
    """A command that `smartserver trace run` ran, from before its start to its end."""

    program: str
    trace: TraceId
    start: int
    end: int
    status: int
    cpu: int = 0
    """Microseconds of processor time of it and of the programs that it waited for."""


Line = ProcessBegan | SpanEnded | RequestEnded | FindingMade | LinkMeasured | ProcessEnded | CommandEnded

KINDS = ("process", "span", "request", "finding", "link", "end", "command")
"""The events there are."""


class _Tag(msgspec.Struct):
    event: str


_tag = msgspec.json.Decoder(_Tag)
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
_encoder = msgspec.json.Encoder()


def encode(event: Event) -> bytes:
    """An event as a line."""
    return _encoder.encode(event) + b"\n"


def decode(line: bytes) -> Line | None:
    """The event of a line; None for one of a kind that this release does not know.

    Raises:
        ValueError: it is no event.
    """
    if _tag.decode(line).event not in KINDS:
        return None
    return _decoder.decode(line)


def schema() -> dict[str, Any]:
    """The JSON schema of a line."""
    return msgspec.json.schema(Line)
