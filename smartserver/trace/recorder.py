"""`Recorder`: observes a connection, and other work that takes time. It makes a `CallRecord` of each request from the
events that an `Observer` sees, and a `Span` of each span that code names."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from smartserver.spans import Part
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.events import End, Error, Event, Reply, Request
from smartserver.wire.messages import (
    ServerSpan,
    ServerTrace,
    decode_failure,
    decode_reply,
    decode_request,
    decode_server_trace,
)

if TYPE_CHECKING:
    import socket

MAX_SHOWN = 16
"""A binary argument of up to twice as many bytes is shown by its first four bytes, a longer one by its length."""

MAX_TEXT = 64
"""The most characters of a name that are shown."""

LOST = "lost"
"""The result of a request whose connection ended before its answer."""


class CallRecord(msgspec.Struct):
    """One request: its calls, its bytes each way, and its times."""

    verbs: list[str]
    arguments: list[str]
    path: str
    started: float
    ended: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    server_microseconds: int = 0
    result: str = ""
    is_vfs: bool = False
    where: str = ""
    """The lines of the program that made a VFS call; empty if they are not recorded."""
    payload: list[bytes] = msgspec.field(default_factory=list)
    server: list[ServerSpan] = msgspec.field(default_factory=list)
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    """The server's counts for the request, by name."""
    answered: float = 0.0
    """The time at which the first part of the answer was received."""

    def add_server_trace(self, trace: ServerTrace | None) -> None:
        """Add the spans and counts that the server reports."""
        if trace is not None:
            self.server += trace.spans
            self.counts |= trace.counts


class Span(NamedTuple):
    """Time that was spent on one part of the work. `cpu`: seconds of processor time of this process."""

    part: str
    name: str
    start: float
    end: float
    cpu: float
    depth: int = 0
    """The number of spans that contain this span."""


class Recorder:
    """Sees every event of one client's connections; implements `wire.observer.Observer` and `spans.Listener`.

    A round trip is counted when bytes are received after bytes were sent: each time that this side had to wait, however
    much was sent. Opened connections are counted separately.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        finished: Callable[[CallRecord], None] | None = None,
        *,
        places: bool = False,
        spanned: Callable[[Span], None] | None = None,
        linked: Callable[[Mapping[str, int]], None] | None = None,
    ) -> None:
        """`places`: record the lines of code that make VFS calls. `finished`, `spanned` and `linked` are called at the
        end of each request, span and connection."""
        self.calls: list[CallRecord] = []
        self.round_trips = 0
        self.connections = 0
        self.bytes_up = 0
        self.bytes_down = 0
        self.started = clock()
        self._clock = clock
        self._finished = finished
        self._places = places
        self._open: dict[int, CallRecord] = {}
        self._unanswered: list[CallRecord] = []
        """Requests without a complete answer."""
        self._waiting = False
        self._spanned = spanned
        self._linked = linked
        self._spans: list[tuple[Part, str, float, float]] = []
        """The spans that have not ended."""

    def began(self, part: Part, name: str) -> None:
        """Begin a span."""
        self._spans.append((part, name, self._clock(), time.process_time()))

    def ended(self) -> None:
        """End the span that began last."""
        part, name, start, cpu = self._spans.pop()
        if self._spanned is not None:
            self._spanned(Span(part, name, start, self._clock(), time.process_time() - cpu, len(self._spans)))

    def measured(self, connection: socket.socket) -> None:
        """Record the state of a TCP connection that ends here."""
        if self._linked is not None:
            from smartserver.tcp_state import tcp_state  # Loaded only if a trace is recorded.

            found = tcp_state(connection)
            if found:
                self._linked(found)

    def connecting(self) -> None:
        """Count a connection that is going to be opened."""
        self.connections += 1
        self.give_up()

    def give_up(self) -> None:
        """Record that no more answers are received on this connection."""
        self._open.clear()
        lost, self._unanswered = self._unanswered, []
        for record in lost:
            record.result, record.ended = LOST, record.ended or self._clock()
            if self._finished is not None:
                self._finished(record)

    def sent(self, event: Event, size: int) -> None:
        """Record an event that will be sent."""
        self.bytes_up += size
        self._waiting = True
        if isinstance(event, Request):
            self._open[event.id] = self._begin(event)
        record = self._open.get(getattr(event, "id", 0))
        if record is not None:
            record.bytes_up += size

    def received(self, event: Event, size: int) -> None:
        """Record an event that was received."""
        self.bytes_down += size
        if self._waiting:
            self._waiting = False
            self.round_trips += 1
        record = self._open.get(getattr(event, "id", 0))
        if record is None:
            return
        record.bytes_down += size
        record.ended = self._clock()
        if isinstance(event, (Reply, Error)):
            record.answered = record.answered or record.ended
            record.payload.append(event.payload)
            if event.more:
                return
            self._answered(record, event)
        if isinstance(event, End):
            with contextlib.suppress(RemoteProtocolError):  # No other code decodes them.
                rest = decode_server_trace(event.trace)
                record.add_server_trace(rest)
                record.server_microseconds += busy(rest.spans) if rest is not None else 0
        # An answer with a body is over with its body: a clone is not done when its first line is here.
        whole = isinstance(event, (End, Error)) or (isinstance(event, Reply) and not event.body)
        if whole and record in self._unanswered:
            self._unanswered.remove(record)
            if self._finished is not None:
                self._finished(record)

    @property
    def vfs_calls(self) -> int:
        """The number of requests with file-level verbs."""
        return sum(record.is_vfs for record in self.calls)

    def _begin(self, event: Request) -> CallRecord:
        request = decode_request(event.payload)
        record = CallRecord(
            [call.verb for call in request.calls],
            [_short(call.arguments, is_content="." not in call.verb) for call in request.calls],
            request.path,
            self._clock(),
            is_vfs=any("." not in call.verb for call in request.calls),
        )
        if self._places and record.is_vfs:
            from smartserver.trace.bans.operations import call_site  # Loaded only if it is asked for.

            record.where = call_site()
        self.calls.append(record)
        self._unanswered.append(record)
        return record

    def _answered(self, record: CallRecord, event: Reply | Error) -> None:
        payload = b"".join(record.payload)
        record.payload.clear()
        if isinstance(event, Error):
            failure = decode_failure(payload)
            record.result = failure.fault.code
            record.server_microseconds = failure.counters.microseconds
            record.add_server_trace(failure.trace)
        else:
            reply = decode_reply(payload)
            refused = sum(outcome.status != 0 for outcome in reply.outcomes)
            record.result = f"{refused} of {len(reply.outcomes)} refused" if refused else "ok"
            record.server_microseconds = reply.counters.microseconds
            record.add_server_trace(reply.trace)


def busy(spans: Sequence[ServerSpan]) -> int:
    """Return the microseconds that a server worked in some spans. Nested spans count once."""
    total = until = 0
    for each in sorted(spans, key=lambda each: each.start):
        if each.part != Part.QUEUED:
            total += max(0, each.end - max(each.start, until))
            until = max(until, each.end)
    return total


_stands_for = ["self"]


def stand_for(process: int) -> None:
    """Use the start time of another process for this process. A worker calls this with the id of its command's
    process."""
    _stands_for[0] = str(process)


def since_start() -> float | None:
    """Return the seconds since this process was started, within 10 ms (proc(5)); None if the system does not report
    it."""
    try:
        with open(f"/proc/{_stands_for[0]}/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        return None


def _short(raw: msgspec.Raw, *, is_content: bool) -> str:
    """Return arguments in a readable form: ids are cut, and of long lists only the length is shown. `is_content`: True
    if bytes are the content of files."""
    values = msgspec.msgpack.decode(raw, type=list[object])
    return ", ".join(
        f"{len(value)} bytes" if is_content and isinstance(value, bytes) else _value(value) for value in values
    )


def _value(value: object) -> str:
    if isinstance(value, bytes):
        printable = value.decode("ascii", "replace")
        if printable.isascii() and printable.isprintable() and len(value) <= MAX_TEXT:
            return printable
        return value[:4].hex() if len(value) <= MAX_SHOWN * 2 else f"{len(value)} bytes"
    if isinstance(value, (list, dict)):
        if len(value) > 2:
            return f"[{len(value)}]"
        return "[" + ", ".join(_value(each) for each in value) + "]"
    text = str(value)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
