"""trace.frames: what goes over a connection, decoded, without tokens."""

from __future__ import annotations

import msgspec

from smartserver.trace.frames import FrameLog
from smartserver.wire.events import Body, Cancel, End, Error, Ping, Progress, Reply, Request
from smartserver.wire.messages import Call, Failure, Fault, Outcome, encode, raw
from smartserver.wire.messages import Progress as ProgressMessage
from smartserver.wire.messages import Reply as ReplyMessage
from smartserver.wire.messages import Request as RequestMessage

TOKEN = "hpss_" + "5ec7e7" * 10


def shown(*events: tuple[str, object]) -> list[str]:
    """The lines of events, each sent (`up`) or received."""
    said: list[str] = []
    log = FrameLog(said.append)
    log.connecting()
    for way, event in events:
        (log.sent if way == "up" else log.received)(event, 20)  # type: ignore[arg-type]
    return said


def test_a_dialog() -> None:
    call = Call("Branch.delete", msgspec.Raw(msgspec.msgpack.encode([b"main", bytes(range(3))])))
    message = RequestMessage("p", b"\x01" * 16, 0, [call], extras={"agent": raw("git"), "token": raw(TOKEN)})
    fault = Fault("no-such-branch", raw({"branch": b"main"}))
    said = shown(
        ("up", Request(1, encode(message), body=True)),
        ("up", Body(1, TOKEN.encode())),
        ("up", End(1, 2, 65)),
        ("down", Progress(1, encode(ProgressMessage("check", 1, 2)))),
        ("down", Reply(1, encode(ReplyMessage([Outcome(0, raw([5]))])))),
        ("down", Error(2, encode(Failure(fault)))),
        ("up", Cancel(2)),
        ("up", Ping(b"there?")),
    )
    assert said == [
        "hpss: connecting",
        'hpss: -> Request 1, 20 B: ["p","01010101010101010101010101010101",0,[["Branch.delete",["main","000102"]]],'
        '0,null,{"agent":"git","token":"not shown"}]',
        "hpss: -> Body 1, 20 B: 65 bytes",
        "hpss: -> End 1, 20 B: 2 segments, 65 bytes",
        'hpss: <- Progress 1, 20 B: ["check",1,2]',
        "hpss: <- Reply 1, 20 B: [[[0,[5],null]],null,[0,0,0,0,0,0],[],[],null]",
        'hpss: <- Error 2, 20 B: [["no-such-branch",{"branch":"main"}],[],null,[0,0,0,0,0,0],[],null]',
        "hpss: -> Cancel 2, 20 B",
        "hpss: -> Ping, 20 B",
    ]
    assert TOKEN not in "".join(said)
    assert TOKEN.encode().hex() not in "".join(said)


def test_what_cannot_be_read_is_said() -> None:
    """Also text that is not UTF-8, in a result that only the verb knows."""
    assert shown(("down", Reply(1, b"\xff")))[1].startswith("hpss: <- Reply 1, 20 B: 1 bytes that cannot be shown: ")
    reply = encode(ReplyMessage([Outcome(0, msgspec.Raw(b"\xa1\xff"))]))
    assert " bytes that cannot be shown: " in shown(("down", Reply(1, reply)))[1]


def test_the_content_of_files_is_not_shown() -> None:
    call = Call("put", msgspec.Raw(msgspec.msgpack.encode([".netrc", TOKEN.encode()])))
    said = shown(
        ("up", Request(1, encode(RequestMessage("p", b"\x01" * 16, 0, [call])))),
        ("down", Reply(1, encode(ReplyMessage([Outcome(0, raw([TOKEN.encode()]))])))),
    )
    assert '["put",[".netrc","65 bytes"]]' in said[1]
    assert '[[0,["65 bytes"],null]]' in said[2]
    assert TOKEN not in "".join(said)
