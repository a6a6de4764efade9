"""One table of events and their bytes; it feeds the writer and the reader (`test_wire_vectors.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import (
    Body,
    Cancel,
    End,
    Error,
    Event,
    GoAway,
    Ping,
    Pong,
    Progress,
    Reply,
    Request,
)
from smartserver.wire.limits import MAX_FRAME

C, S = Role.CLIENT, Role.SERVER
Said = tuple[Role, Event]


class Pair:
    """Two connections joined: each test checks both ends."""

    def __init__(self, *said: Said) -> None:
        self.ends = {role: Connection(role) for role in Role}
        for sender, event in said:
            self.say(sender, event)

    def say(self, sender: Role, event: Event) -> list[Event]:
        """Send an event, deliver its bytes; what the other end makes of them."""
        return self.deliver(sender, self.ends[sender].send(event))

    def deliver(self, sender: Role, sent: bytes) -> list[Event]:
        receiver = self.ends[sender.peer]
        receiver.receive_data(sent)
        return list(iter(receiver.next_event, None))


@dataclass(frozen=True)
class Vector:
    name: str
    sender: Role
    event: Event
    wire: bytes
    before: tuple[Said, ...] = ()
    """What was said already; nothing: the opening line comes first and is part of `wire`."""
    events: tuple[Event, ...] | None = None
    """What is received, where it is not `event` alone."""

    @property
    def received(self) -> tuple[Event, ...]:
        return self.events if self.events is not None else (self.event,)


OPENED: tuple[Said, ...] = ((C, Ping()), (S, Pong()))
ASKED: tuple[Said, ...] = (*OPENED, (C, Request(1, b"")))
PUSHING: tuple[Said, ...] = (*OPENED, (C, Request(1, b"", body=True)))
PULLING: tuple[Said, ...] = (*ASKED, (S, Reply(1, b"", body=True)))
FULL = bytes(range(256)) * (MAX_FRAME // 256)
H = bytes.fromhex

VECTORS = [
    Vector("client opens", C, Request(1, b"hi"), b"hpss/1\n" + H("00000002 01 00000001") + b"hi"),
    Vector("server opens", S, Ping(b"?"), b"hpss/1\n" + H("00000001 08 00000000") + b"?"),
    Vector("request", C, Request(7, b"ask"), H("00000003 01 00000007") + b"ask", OPENED),
    Vector("empty request", C, Request(7, b""), H("00000000 01 00000007"), OPENED),
    Vector("largest id", C, Request(0xFFFFFFFF, b""), H("00000000 01 ffffffff"), OPENED),
    Vector("request with a body", C, Request(2, b"ask", body=True), H("00000003 41 00000002") + b"ask", OPENED),
    Vector("part of a request", C, Request(2, FULL, more=True), H("00040000 01 00000002") + FULL, OPENED),
    Vector(
        "last part of a request",
        C,
        Request(2, b"tail"),
        H("00000004 01 00000002") + b"tail",
        (*OPENED, (C, Request(2, FULL, more=True))),
    ),
    Vector(
        "long request",
        C,
        Request(2, FULL + b"tail", body=True),
        H("00040000 41 00000002") + FULL + H("00000004 41 00000002") + b"tail",
        OPENED,
        (Request(2, FULL, body=True, more=True), Request(2, b"tail", body=True)),
    ),
    Vector(
        "two parts of a request",
        C,
        Request(2, FULL + FULL, more=True),
        (H("00040000 01 00000002") + FULL) * 2,
        OPENED,
        (Request(2, FULL, more=True), Request(2, FULL, more=True)),
    ),
    Vector(
        "reply of exactly one frame",
        S,
        Reply(1, FULL),
        H("00040000 04 00000001") + FULL + H("00000000 04 00000001"),
        ASKED,
        (Reply(1, FULL, more=True), Reply(1, b"")),
    ),
    Vector("body up", C, Body(1, b"segment"), H("00000007 02 00000001") + b"segment", PUSHING),
    Vector(
        "long body",
        C,
        Body(1, FULL + b"tail"),
        H("00040000 02 00000001") + FULL + H("00000004 02 00000001") + b"tail",
        PUSHING,
        (Body(1, FULL), Body(1, b"tail")),
    ),
    Vector("full body", C, Body(1, FULL), H("00040000 02 00000001") + FULL, PUSHING),
    Vector("empty body", C, Body(1, b""), H("00000000 02 00000001"), PUSHING),
    Vector("end of nothing", C, End(1, 0, 0), H("0000000c 03 00000001 00000000 0000000000000000"), PUSHING),
    Vector(
        "end",
        C,
        End(1, 2, 7),
        H("0000000c 03 00000001 00000002 0000000000000007"),
        (*PUSHING, (C, Body(1, b"four")), (C, Body(1, b"seg"))),
    ),
    Vector("progress", S, Progress(1, b"half"), H("00000004 06 00000001") + b"half", ASKED),
    Vector("reply", S, Reply(1, b"yes"), H("00000003 04 00000001") + b"yes", ASKED),
    Vector("reply with a body", S, Reply(1, b"yes", body=True), H("00000003 44 00000001") + b"yes", ASKED),
    Vector("body down", S, Body(1, b"segment"), H("00000007 02 00000001") + b"segment", PULLING),
    Vector("end of a body down", S, End(1, 0, 0), H("0000000c 03 00000001 00000000 0000000000000000"), PULLING),
    Vector("error", S, Error(1, b"no"), H("00000002 05 00000001") + b"no", ASKED),
    Vector("early error", S, Error(1, b"no"), H("00000002 05 00000001") + b"no", PUSHING),
    Vector("error in a body", S, Error(1, b"no"), H("00000002 05 00000001") + b"no", PULLING),
    Vector("part of an error", S, Error(1, FULL, more=True), H("00040000 05 00000001") + FULL, ASKED),
    Vector("cancel", C, Cancel(1), H("00000000 07 00000001"), ASKED),
    Vector("cancel of an upload", C, Cancel(1), H("00000000 07 00000001"), PUSHING),
    Vector(
        "cancel of a refused upload",
        C,
        Cancel(1),
        H("00000000 07 00000001"),
        (*PUSHING, (S, Error(1, b"no"))),
    ),
    Vector("ping", C, Ping(b"t"), H("00000001 08 00000000") + b"t", OPENED),
    Vector("pong", S, Pong(b"t"), H("00000001 09 00000000") + b"t", (*OPENED, (C, Ping(b"t")))),
    Vector("go away", S, GoAway(b"restart"), H("00000007 0a 00000000") + b"restart", OPENED),
]
