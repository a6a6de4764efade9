"""The second decoder's reading of a connection, from doc/spec/wire.md alone: frames, messages and bodies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
from second_decoder import (
    Cursor,
    Kinds,
    Parents,
    Segment,
    must,
    read_graph,
    read_segments,
)

OBJECT: Kinds = [{"name": "object", "check": "git-sha1", "base": True}]  # the kinds of `git sha1`

REQUEST, BODY, END, REPLY, ERROR, PROGRESS, CANCEL, PING, PONG, GOAWAY = range(1, 11)
WITH_BODY = 0x40
CLIENT = {REQUEST, REQUEST | WITH_BODY, BODY, END, CANCEL, PING, PONG}
SERVER = {REPLY, REPLY | WITH_BODY, ERROR, PROGRESS, BODY, END, PING, PONG, GOAWAY}
LIMITS = {END: 12, CANCEL: 0, PING: 64, PONG: 64, GOAWAY: 1024}


@dataclass
class Side:
    """What one side said of one request."""

    messages: list[tuple[int, Any]] = field(default_factory=list)  # type and content, in order
    body: bytes | None = None
    segments: int | None = None  # from END


def read_side(data: bytes, speaker: set[int]) -> dict[int, Side]:
    """Read all that one side of a connection sent, by request id."""
    must(data.startswith(b"hpss/1\n"), "a side begins with the opening line")
    cursor, sides, parts, going_on = Cursor(data, 7), dict[int, Side](), b"", None
    while cursor.at < cursor.end:
        length, kind, request = cursor.unpack(">IBI")
        must(length <= 262144, "a payload fits into a frame")
        payload = cursor.take(length)
        if kind >= 0x80:
            continue
        must(kind in speaker and length <= LIMITS.get(kind, length), "a frame is one that this side may send")
        must((request == 0) == (kind in (PING, PONG, GOAWAY)), "a request has an id")
        side = sides.setdefault(request, Side())
        if kind & ~WITH_BODY in (REQUEST, REPLY, ERROR):
            must(going_on in (None, (kind, request)), "parts of two messages do not mix")
            parts, going_on = parts + payload, (kind, request) if length == 262144 else None
            if going_on is None:
                side.messages.append((kind, msgspec.msgpack.decode(parts)))
                parts, side.body = b"", b"" if kind & WITH_BODY else side.body
        elif kind == BODY:
            must(side.body is not None and side.segments is None, "a body comes between its message and END")
            side.body = (side.body or b"") + payload
        elif kind == END:
            side.segments, size = Cursor(payload).unpack(">IQ")
            must(side.body is not None and size == len(side.body), "END counts the bytes")
        else:
            side.messages.append((kind, msgspec.msgpack.decode(payload) if kind == PROGRESS else payload))
    must(going_on is None, "the last message is whole")
    return sides


@dataclass
class Exchange:
    """A request and what became of it."""

    id: bytes
    path: str
    calls: list[list[Any]]
    fault: list[Any] | None  # of an ERROR
    outcomes: list[list[Any]]
    state: list[Any] | None
    graph: list[tuple[bytes, Parents]]
    up: list[Segment]
    down: list[Segment]


def read_dialog(client: bytes, server: bytes, kinds: Kinds = OBJECT) -> list[Exchange]:
    """Read the bytes that went each way over a connection, all of whose requests are over."""
    asked, answered, found = read_side(client, CLIENT), read_side(server, SERVER), []
    requests = [request for request in asked if request]
    must(requests == sorted(requests) and {0, *asked} >= answered.keys(), "ids ascend, and only they are answered")
    for ours, theirs in ((asked[request], answered[request]) for request in requests):
        (first, asking), *others = ours.messages
        flags = asking[4] if len(asking) > 4 else 0
        must(first & ~WITH_BODY == REQUEST and bool(first & WITH_BODY) == bool(flags & 4), "BODY is said twice")
        must([kind for kind, _ in others] in ([], [CANCEL]), "only CANCEL follows a request")
        must(bool(others) or (ours.segments is None) == (ours.body is None), "a body that is not cancelled ends")
        final = [kind for kind, _ in theirs.messages if kind != PROGRESS]
        must(final in ([REPLY], [REPLY | WITH_BODY], [ERROR], [REPLY | WITH_BODY, ERROR]), "there is one final answer")
        must((theirs.segments is None) == (final != [REPLY | WITH_BODY]), "a body ends with END or ERROR")
        cursor = Cursor(ours.body or b"")
        graph = read_graph(cursor) if flags & 8 and (ours.segments is not None) else []
        up = read_segments(cursor, kinds) if ours.segments is not None else []
        down = read_segments(Cursor(theirs.body or b""), kinds) if theirs.segments is not None else []
        must((ours.segments or 0, theirs.segments or 0) == (len(up), len(down)), "END counts the segments")
        answer = theirs.messages[-1][1]
        fault = answer.pop(0) if final[-1] == ERROR else None
        outcomes, state = (*answer, *([], None)[len(answer) :])[:2]
        must(len(outcomes) == len(asking[3]) or (fault is not None and not outcomes), "each call has its outcome")
        found.append(Exchange(asking[1], asking[0], asking[3], fault, outcomes, state, graph, up, down))
    return found
