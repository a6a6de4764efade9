"""A trace as OpenTelemetry's trace data, in JSON as its collectors read it from a file (OTLP 1.0).

Its times are those of the Unix epoch. Ids are made from what a span is, so that the same file gives the same ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any

import msgspec

from smartserver.trace.events import RequestEnded, SpanEnded
from smartserver.trace.layout import Interval, nested, process_tracks, service
from smartserver.trace.report import CALLED
from smartserver.trace.wait import Trace

Value = str | int | list[str]

FAILED = 2
"""The status of a span."""


class Kind(IntEnum):
    """Which side of a call a span is."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3


class Span(msgspec.Struct, rename="camel"):
    """One of OpenTelemetry."""

    trace_id: str
    span_id: str
    parent_span_id: str
    name: str
    kind: int
    start_time_unix_nano: str
    end_time_unix_nano: str
    attributes: list[dict[str, Any]]
    status: dict[str, Any]


def otlp(traces: Sequence[Trace]) -> bytes:
    """The spans of a file's traces as JSON."""
    return msgspec.json.encode({"resourceSpans": [each for trace in traces for each in _resources(trace)]}) + b"\n"


def _resources(trace: Trace) -> Iterator[dict[str, Any]]:
    """What each process did, and the server."""
    makes, root = _Spans(trace), ""
    if trace.command is not None:
        command = trace.command
        ran = makes.span(Kind.INTERNAL, command.program, command, told={"process.exit.code": command.status})
        root = ran.span_id
        yield _resource(command.program, [ran], command.process)
    for track in process_tracks(trace):
        process = makes.span(Kind.INTERNAL, track.program, track, root)
        own = [process, *_tree(makes, Kind.INTERNAL, track.spans, process, {})]
        served: list[Span] = []
        for request in track.requests:
            called = makes.request(request, process)
            own.append(called)
            served += _served(makes, request, called)
        yield _resource(track.program, own, track.process)
        if served:
            yield _resource("server", served)


def _tree(
    makes: _Spans, kind: Kind, spans: Iterable[SpanEnded], root: Span, more: Mapping[str, Value]
) -> Iterator[Span]:
    """Spans below that of which they are part, the outermost below `root`. `more`: attributes of each."""
    ids: dict[int, str] = {}
    for span, around in nested(spans):
        told = {"smartserver.part": span.part, "smartserver.count": span.count, "smartserver.cpu.us": span.cpu, **more}
        parent = next((ids[id(each)] for each in reversed(around) if each.end >= span.end), root.span_id)
        made = makes.span(kind, span.name or CALLED.get(span.part, span.part), span, parent, told)
        ids[id(span)] = made.span_id
        yield made


def _served(makes: _Spans, request: RequestEnded, called: Span) -> Iterator[Span]:
    """The server's spans of a request."""
    found = service(request)
    if found is not None:
        spans = [SpanEnded(0, each.part, each.start, each.end, each.name) for each in found.spans]
        yield from _tree(makes, Kind.SERVER, spans, called, {"smartserver.uncertainty.us": found.slack})


def _resource(name: str, spans: list[Span], process: int | None = None) -> dict[str, Any]:
    told: dict[str, Value] = (
        {"service.name": name} if process is None else {"service.name": name, "process.pid": process}
    )
    scope = {"scope": {"name": "smartserver"}, "spans": spans}
    return {"resource": {"attributes": _attributes(told)}, "scopeSpans": [scope]}


def _attributes(told: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in told.items()]


def _value(value: Value) -> dict[str, Any]:
    match value:
        case str():
            return {"stringValue": value}
        case int():
            return {"intValue": str(value)}  # 64 bits, which JSON's numbers have no room for.
        case _:
            return {"arrayValue": {"values": [_value(each) for each in value]}}


class _Spans:
    """Makes the spans of one trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = (trace.command or trace.processes[0]).trace
        self._epoch = next((each.epoch for each in trace.processes), 0)
        self._made = 0

    def span(
        self, kind: Kind, name: str, when: Interval, parent: str = "", told: Mapping[str, Value] | None = None,
        failure: str = "",
    ) -> Span:  # fmt: skip
        """A span; `failure`: why what it is of failed."""
        self._made += 1
        number = hashlib.sha256(f"{self._trace} {self._made}".encode()).hexdigest()[:16]
        status = {"code": FAILED, "message": failure} if failure else {}
        start, end = (str((self._epoch + at) * 1000) for at in (when.start, when.end))
        return Span(self._trace, number, parent, name, kind, start, end, _attributes(told or {}), status)

    def request(self, request: RequestEnded, process: Span) -> Span:
        """A request that a process made."""
        told: dict[str, Value] = {
            "rpc.method": "; ".join(request.verbs), "smartserver.arguments": request.arguments,
            "smartserver.path": request.path, "smartserver.bytes.up": request.up,
            "smartserver.bytes.down": request.down, "smartserver.server.us": request.in_server,
            "code.stacktrace": request.where,
            **{f"smartserver.server.{name}": count for name, count in request.counts.items()},
        }  # fmt: skip
        failure = "" if request.result == "ok" else request.result
        return self.span(Kind.CLIENT, "; ".join(request.verbs), request, process.span_id, told, failure)
