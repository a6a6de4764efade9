"""The payloads of REQUEST, REPLY and ERROR: msgpack arrays, to which later versions only append fields.

A server refuses a request with unknown fields, so that it never executes only the part that it understands; a client
skips unknown fields of a reply. Payloads longer than one frame continue in the next (`wire.limits.MAX_FRAME`).
"""

from __future__ import annotations

import enum
from typing import Annotated, TypeVar

import msgspec

from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.limits import (
    MAX_ARGUMENTS,
    MAX_CALLS,
    MAX_COUNTS,
    MAX_ENTRIES,
    MAX_MAPS,
    MAX_SPAN_NAME,
    MAX_SPANS,
    MAX_WORDS,
)

T = TypeVar("T")


class RequestFlag(enum.IntFlag):
    """Bits of `Request.flags`."""

    NONE = 0
    ATOMIC = 1
    """Either all calls are carried out, or none is."""
    CHECK_ONLY = 2
    """The server only judges the calls and changes nothing (dry run)."""
    BODY = 4
    """BODY frames follow the request."""
    GRAPH_FIRST = 8
    """The body begins with the graph of its segments."""
    BELOW = 16
    """The path may lead below a repository. In the calls, the ref `.` is the branch that the rest of the path names."""
    BULK = 32
    """The body is compressed as one bulk stream."""


class Call(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One use of a verb: its name and its arguments, still encoded."""

    verb: str
    arguments: msgspec.Raw


class KnownVersion(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The newest version of a repository that the client has seen in a `State`."""

    incarnation: bytes
    version: int
    mark: int = 0


PUSH_OPTIONS = "push-options"
"""The key of the extra field with push options, an array of text."""


class Request(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An ordered list of calls on one repository.

    `id`: 16 random bytes, the same in each retry. `age`: milliseconds since the first sending, 0 for the first.
    `extras`: facts about the client (`agent`, `vcs`) and fields of later versions; the key of a field that the server
    must obey begins with `!`.
    """

    path: str
    id: bytes
    age: int
    calls: Annotated[list[Call], msgspec.Meta(max_length=MAX_CALLS)]
    flags: int = 0
    known: KnownVersion | None = None
    extras: dict[str, msgspec.Raw] = {}


class Status(enum.IntEnum):
    """The outcome of a call."""

    DONE = 0
    REFUSED = 1
    NOT_DONE = 2


class Fault(msgspec.Struct, frozen=True, array_like=True):
    """An error: its code, and its arguments by name, still encoded (`named`)."""

    code: str
    arguments: msgspec.Raw


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of one call: its result if it was carried out, else the error. The results of all calls have at most
    `MAX_RESULTS` bytes."""

    status: int
    result: msgspec.Raw = msgspec.Raw(b"\xc0")
    fault: Fault | None = None


Entries = dict[bytes, bytes | None]
"""The values of a map's entries, by key; nil for a removed entry."""


class State(msgspec.Struct, frozen=True, array_like=True):
    """The state of a repository: all of it, or its changes after version `since`.

    `refs` and `maps` map a name to its new value, still encoded. The value of a ref is a `RefValue` of `records.model`,
    or nil for a deleted ref; the value of a map is its `Entries` (`entries_of`). `vcs` and `settings` are empty if they
    did not change after `since`. After a backup is restored, the same version numbers are used again; `mark`
    distinguishes two versions with the same number.
    """

    incarnation: bytes
    version: int
    since: int | None
    refs: Annotated[dict[bytes, msgspec.Raw], msgspec.Meta(max_length=MAX_ENTRIES)]
    maps: Annotated[dict[str, msgspec.Raw], msgspec.Meta(max_length=MAX_MAPS)] = {}
    vcs: str = ""
    settings: Annotated[dict[str, bytes], msgspec.Meta(max_length=MAX_WORDS)] = {}
    mark: int = 0


class Counters(msgspec.Struct, frozen=True, array_like=True):
    """The server's work for a request: its working time in microseconds, and its file operations."""

    microseconds: int = 0
    files_opened: int = 0
    reads: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    syncs: int = 0


class Advice(msgspec.Struct, frozen=True, array_like=True):
    """A message of the server for the user: its kind, and its arguments by name, still encoded (`named`)."""

    kind: str
    arguments: msgspec.Raw


class ServerSpan(msgspec.Struct, frozen=True, array_like=True):
    """A timed step of the server's work for a request. `part`: a `spans.Part`. `start`, `end`: microseconds after the
    server had read the request, by its clock."""

    part: Annotated[str, msgspec.Meta(max_length=MAX_SPAN_NAME)]
    name: Annotated[str, msgspec.Meta(max_length=MAX_SPAN_NAME)]
    start: int
    end: int


REPACKED = "repacked_meanwhile"
"""The name of a count of a request: 1 if the server joined packs of the repository meanwhile."""


class ServerTrace(msgspec.Struct, frozen=True, array_like=True):
    """The server's trace of a request whose `traceparent` has the flag `sampled`: the spans since the previous trace of
    the request, and the counts, by name, since the start of the request."""

    spans: Annotated[list[ServerSpan], msgspec.Meta(max_length=MAX_SPANS)] = []
    counts: Annotated[dict[str, int], msgspec.Meta(max_length=MAX_COUNTS)] = {}


Outcomes = Annotated[list[Outcome], msgspec.Meta(max_length=MAX_CALLS)]
Words = Annotated[list[str], msgspec.Meta(max_length=MAX_WORDS)]


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a request that was carried out, at least in part. An empty `trace` is not encoded, nor is an empty
    `advice` without a `trace`."""

    outcomes: Outcomes
    state: State | None = None
    counters: Counters = Counters()
    capabilities: Words = []
    advice: Annotated[list[Advice], msgspec.Meta(max_length=MAX_WORDS)] = []
    trace: ServerTrace | None = None


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a request that changed nothing. An empty `trace` is not encoded."""

    fault: Fault
    outcomes: Outcomes = []
    state: State | None = None
    counters: Counters = Counters()
    capabilities: Words = []
    trace: ServerTrace | None = None


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """The progress of a phase of a request: `done` of `total` units. `total` is 0 if it is unknown."""

    phase: str
    done: int
    total: int = 0


_encoder = msgspec.msgpack.Encoder()
_request = msgspec.msgpack.Decoder(Request)
_reply = msgspec.msgpack.Decoder(Reply)
_failure = msgspec.msgpack.Decoder(Failure)
_progress = msgspec.msgpack.Decoder(Progress)
_server_trace = msgspec.msgpack.Decoder(ServerTrace)
_arguments = msgspec.msgpack.Decoder(dict[str, object])
_entries = msgspec.msgpack.Decoder(Annotated[Entries, msgspec.Meta(max_length=MAX_ENTRIES)])


def encode(message: msgspec.Struct) -> bytes:
    """Return the payload of a message."""
    match message:
        case Reply(trace=None, advice=[]):
            return _encoder.encode((message.outcomes, message.state, message.counters, message.capabilities))
        case Reply(trace=None):
            counted = (message.outcomes, message.state, message.counters)
            return _encoder.encode((*counted, message.capabilities, message.advice))
        case Failure(trace=None):
            told = (message.fault, message.outcomes, message.state)
            return _encoder.encode((*told, message.counters, message.capabilities))
    return _encoder.encode(message)


def encode_server_trace(trace: ServerTrace | None) -> bytes:
    """Encode a trace for END; None becomes an empty payload."""
    return _encoder.encode(trace) if trace is not None else b""


def _decode(decoder: msgspec.msgpack.Decoder[T], what: str, payload: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"expected {what}, got {len(payload)} bytes that are none: {error}") from None


def raw(value: object) -> msgspec.Raw:
    """Encode a value as a part of a message."""
    return msgspec.Raw(_encoder.encode(value))


def entries_of(state: State) -> dict[str, Entries]:
    """Return the entries of a state's maps.

    Raises:
        RemoteProtocolError: the entries are not valid, or more than `MAX_ENTRIES` together.
    """
    found: dict[str, Entries] = {}
    count = 0
    for name, said in state.maps.items():
        found[name] = _decode(_entries, "entries of a map", said)
        count += len(found[name])
        if count > MAX_ENTRIES:
            raise RemoteProtocolError(f"expected at most {MAX_ENTRIES} entries of maps, got {count} or more")
    return found


def named(said: Fault | Advice) -> dict[str, object]:
    """Return the arguments of a fault or advice, by name.

    Raises:
        RemoteProtocolError: the arguments are not valid, or longer than `MAX_ARGUMENTS`.
    """
    if len(said.arguments) > MAX_ARGUMENTS:
        raise RemoteProtocolError(f"expected at most {MAX_ARGUMENTS} bytes of arguments, got {len(said.arguments)}")
    return _decode(_arguments, "arguments", said.arguments)


def decode_request(payload: bytes) -> Request:
    """Return the request in a payload.

    Raises:
        RemoteProtocolError: the payload is not a request, or has an unknown field.
    """
    return _decode(_request, "a request", payload)


def decode_reply(payload: bytes) -> Reply:
    """Return the reply in a payload.

    Raises:
        RemoteProtocolError: the payload is not a reply.
    """
    return _decode(_reply, "a reply", payload)


def decode_failure(payload: bytes) -> Failure:
    """Return the failure in a payload.

    Raises:
        RemoteProtocolError: the payload is not a failure.
    """
    return _decode(_failure, "an error", payload)


def decode_server_trace(payload: bytes) -> ServerTrace | None:
    """Return the trace in END; None if the payload is empty.

    Raises:
        RemoteProtocolError: the payload is not a trace.
    """
    return _decode(_server_trace, "spans and counts", payload) if payload else None


def decode_progress(payload: bytes) -> Progress:
    """Return the progress in a payload.

    Raises:
        RemoteProtocolError: the payload is not progress.
    """
    return _decode(_progress, "progress", payload)
