"""Events of a trace: one JSON object a line, in the order of their ends.

Times are whole microseconds of the system's monotonic clock, which all processes of a machine share. Fields are only
ever added. A reader skips fields and events that it does not know. `make docs` makes `trace-schema.json` from this
file.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from smartserver.wire.messages import ServerSpan

VERSION = 1
"""The version of the format. It changes when a field is removed or its meaning changes."""


TraceId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
"""The id that all processes of a trace share: the trace-id of W3C Trace Context."""


class Event(msgspec.Struct, tag_field="event", omit_defaults=True):
    """A line of a trace. `process`: the id of the process that the line is about."""

    process: int


class ProcessBegan(Event, tag="process"):
    """A process begins to record."""

    version: int
    program: str
    trace: TraceId
    began: int
    is_host: bool = False
    """True if this package runs inside another program (`brz`, `hg`): time that no span covers is the work of that
    program."""
    started: int | None = None
    """The time at which the system started the process, within 10 ms; left out if it is unknown."""
    epoch: int = 0
    """The Unix time, in microseconds, at which the monotonic clock was 0."""


class SpanEnded(Event, tag="span"):
    """Time that one process spent on one part of its work. The spans of a process nest."""

    part: str
    start: int
    end: int
    name: str = ""
    count: int = 1
    """The number of consecutive spans that this event stands for."""
    cpu: int = 0
    """Microseconds of processor time of the process, without its children."""


class RequestEnded(Event, tag="request"):
    """A request and its answer, including their bodies."""

    verbs: list[str]
    path: str
    start: int
    end: int
    result: str
    arguments: list[str] = []
    answered: int = 0
    """The time at which the first part of the answer was received; 0 if none was."""
    up: int = 0
    """The number of bytes sent to the server, on the wire; `down`: the number received from the server."""
    down: int = 0
    in_server: int = 0
    """Microseconds that the server worked on the request, by the server's clock."""
    server: list[ServerSpan] = []
    counts: dict[str, int] = {}
    """The server's counts for the request (`smartserver.meters`). Names of the counts of its kernel begin with
    `tcp_`."""
    where: str = ""
    """The lines of the program that made a VFS call, the innermost first."""


class FindingMade(Event, tag="finding"):
    """A needless cost of requests, which a behaviour of `trace.bans` found."""

    behaviour: str
    verb: str
    why: str
    cost: str
    """The part that could be saved: the `request`, the `connection` that was opened for it, or the `body` of the
    request or the answer."""
    requests: list[int]
    """The `start` of each request of the finding."""
    where: str
    """The lines of the program that made the last of these requests, the innermost first."""
    share: float = 1.0
    """The needless fraction of a `body`, from 0 to 1."""


class LinkMeasured(Event, tag="link"):
    """A TCP connection as the kernel of the client saw it (tcp(7), TCP_INFO). Times are microseconds; counts begin when
    it was opened."""

    rtt: int
    """The smoothed round trip time."""
    least_rtt: int
    window: int
    """The number of packets that may be in transit (cwnd)."""
    packet: int
    """The most bytes of data in a packet (MSS)."""
    packets: int
    """The number of sent packets that had data."""
    again: int
    """The number of packets that were sent again."""
    by_window: int
    """The time in which the peer's receive window was full."""
    delays: int = 0
    """1 if the system delays small packets (Nagle's algorithm)."""


class ProcessEnded(Event, tag="end"):
    """A process stops recording."""

    at: int
    round_trips: int
    connections: int
    up: int
    down: int


class CommandEnded(Event, tag="command"):
    """A command of `smartserver trace run`, with the time from before its start to its end."""

    program: str
    trace: TraceId
    start: int
    end: int
    status: int
    cpu: int = 0
    """Microseconds of processor time of the command and of the programs for which it waited."""


Line = ProcessBegan | SpanEnded | RequestEnded | FindingMade | LinkMeasured | ProcessEnded | CommandEnded

KINDS = ("process", "span", "request", "finding", "link", "end", "command")
"""The kinds of events."""


class _Tag(msgspec.Struct):
    event: str


_tag = msgspec.json.Decoder(_Tag)
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
_encoder = msgspec.json.Encoder()


def encode(event: Event) -> bytes:
    """Encode an event as a line."""
    return _encoder.encode(event) + b"\n"


def decode(line: bytes) -> Line | None:
    """Decode the event of a line; None if this release does not know its kind.

    Raises:
        ValueError: the line is not an event.
    """
    if _tag.decode(line).event not in KINDS:
        return None
    return _decoder.decode(line)


def schema() -> dict[str, Any]:
    """Return the JSON schema of a line."""
    return msgspec.json.schema(Line)
