"""The hex blocks of doc/spec/wire.md as objects; the test compares both, in both directions."""

from __future__ import annotations

import msgspec

from smartserver.vcs.git.selector import BLOBS, Cut, FetchSelector
from smartserver.wire.connection import Role
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
from smartserver.wire.messages import (
    Advice,
    Call,
    Counters,
    Failure,
    Fault,
    KnownVersion,
    Outcome,
    RequestFlag,
    State,
    Status,
    encode,
    raw,
)
from smartserver.wire.messages import Progress as ProgressMessage
from smartserver.wire.messages import Reply as ReplyMessage
from smartserver.wire.messages import Request as RequestMessage

C, S = Role.CLIENT, Role.SERVER
Said = tuple[Role, Event]

REQUEST_ID = bytes(range(16))
INCARNATION = bytes(range(0xA0, 0xB0))
OLD = bytes(range(0x40, 0x54))
TIP = bytes(range(0x20, 0x34))
MAIN = b"refs/heads/main"
OLDER_MARK, NEWER_MARK = 0xB0B1, 0xC0C1


PING = RequestMessage("", REQUEST_ID, 0, [Call("Server.ping", raw([]))])
PUSH = RequestMessage(
    "/project",
    REQUEST_ID,
    0,
    [
        Call("Repository.insert_pack", raw([])),
        Call("Branch.set_last_revision", raw([MAIN, TIP, "ff", True, b"", b""])),
    ],
    int(RequestFlag.ATOMIC | RequestFlag.BODY),
    KnownVersion(INCARNATION, 7, OLDER_MARK),
)
PUSHED = ReplyMessage(
    [Outcome(Status.DONE, raw([1])), Outcome(Status.DONE, raw([[OLD]]))],
    State(INCARNATION, 8, 7, {MAIN: raw([[TIP]])}, mark=1),
    Counters(1800, 2, 5, 4096, 900, 6),
)
DIVERGED = Failure(
    Fault("refused", raw({})),
    [
        Outcome(Status.NOT_DONE, fault=Fault("not-done", raw({}))),
        Outcome(Status.REFUSED, fault=Fault("diverged", raw({"ref": MAIN, "tip": OLD}))),
    ],
    State(INCARNATION, 9, 7, {MAIN: raw([[OLD]])}, mark=NEWER_MARK),
)
STATE = State(
    INCARNATION,
    3,
    None,
    {MAIN: raw([[TIP]]), b"old": raw(None), b"stable": raw([[OLD, b"7"], [TIP, b"", True]])},
    {"bookmarks": raw({b"@": TIP, b"gone": None})},
    "git sha1",
    {"HEAD": MAIN},
    1,
)

MESSAGES: dict[str, msgspec.Struct] = {
    "a State with everything": STATE,
    "a Progress": ProgressMessage("verify", 40, 100),
    "an Advice": Advice("faults", raw({"faults": {"badTimezone": [3, "ab12"]}})),
    "a FetchSelector": FetchSelector([b"\1" * 20], 2, filters=[(BLOBS, 0)], follow=[b"refs/tags/"], thin=True),
    "a Cut": Cut([b"\2" * 20], [b"\1" * 20]),
}

DIALOGS: dict[str, list[Said]] = {
    "ping": [(C, Request(1, encode(PING))), (S, Reply(1, encode(ReplyMessage([Outcome(0, raw([]))]))))],
    "push": [
        (C, Request(1, encode(PUSH), body=True)),
        (C, Body(1, b"(the segment)")),
        (C, End(1, 1, 13)),
        (S, Reply(1, encode(PUSHED))),
    ],
    "refused while sending": [
        (C, Request(1, b"...", body=True)),
        (C, Body(1, b"(the graph)")),
        (S, Error(1, encode(DIVERGED))),
        (C, Body(1, b"(a part of the segments)")),
        (C, Cancel(1)),
    ],
    "two requests and a body down": [
        (C, Request(1, b"...")),
        (C, Request(2, b"...")),
        (S, Progress(1, encode(ProgressMessage("reading", 0)))),
        (S, Reply(1, b"...", body=True)),
        (S, Body(1, b"(a segment)")),
        (S, Reply(2, b"...")),
        (S, Body(1, b"(another)")),
        (S, End(1, 2, 20)),
    ],
    "cancelled": [
        (C, Request(1, b"...")),
        (S, Reply(1, b"...", body=True)),
        (S, Body(1, b"(a segment)")),
        (C, Cancel(1)),
        (S, Error(1, encode(Failure(Fault("cancelled", raw({})))))),
    ],
    "signs of life": [(C, Ping(b"7")), (S, Pong(b"7")), (S, GoAway(b"restart"))],
}
"""Title -> what is said; the payload `...` stands for one shown elsewhere."""

ANOTHER_VERSION = "a client of version 2"
TO_IGNORE = "a frame to ignore"
