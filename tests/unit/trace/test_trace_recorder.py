"""trace.recorder, text, frames, flags, tracing: which flags there are, and the lines that they show."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from needs import needs

from smartserver.trace.flags import BadFlag, Flags, read
from smartserver.trace.frames import FrameLog
from smartserver.trace.recorder import CallRecord, Recorder, busy
from smartserver.trace.text import line, size, summary
from smartserver.trace.tracing import Tracing
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Body, Cancel, End, Error, Event, GoAway, Ping, Progress, Reply, Request
from smartserver.wire.messages import Call, Counters, Failure, Fault, Outcome, ServerSpan, Status, encode, raw
from smartserver.wire.messages import Progress as ProgressMessage
from smartserver.wire.messages import Reply as ReplyMessage
from smartserver.wire.messages import Request as RequestMessage


@pytest.mark.parametrize(
    ("given", "words", "rules", "file"),
    [
        ([""], set(), (), ""),
        (["other,hpss"], {"other", "hpss"}, (), ""),
        (["hpss-ban=vfs:*,rpc:Server.ping"], set(), ("vfs:*", "rpc:Server.ping"), ""),
        (
            ["hpss,hpss-ban=vfs:*,silly,hpss,other,hpss-ban=reopen"],
            {"hpss", "other"},
            ("vfs:*", "silly", "reopen"),
            "",
        ),
        (["hpss-ban="], set(), ("",), ""),
        (["hpss-ban=silly,hpss-json=/a/b", "hpssvfs"], {"hpssvfs"}, ("silly",), "/a/b"),
    ],
)
def test_flags_and_rules(given: list[str], words: set[str], rules: tuple[str, ...], file: str) -> None:
    assert read(given) == Flags(frozenset(words), rules, file)


def test_a_file_below_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """No shell reads a setting such as `hpss.debug`."""
    monkeypatch.setenv("HOME", "/home/me")
    assert read(["hpss-json=~/trace"]).file == "/home/me/trace"


def test_they_are_told_to_a_server_that_is_started() -> None:
    given = ["hpss-ban=vfs:*,silly", "hpssvfs,hpss,hpss-json=/a b"]
    assert read(given).told() == ["hpss", "hpssvfs", "hpss-ban=vfs:*,silly", "hpss-json=/a b"]
    assert read(read(given).told()) == read(given)


@pytest.mark.parametrize("flags", ["", "hpss", "hpssvfs,hpss-ban=silly,vfs:*,hpssdetail", "hpss,", "hpss-ban=nonsense"])
def test_what_is_known(flags: str) -> None:
    """A rule is checked where it is made."""
    read([flags]).check("it")


@pytest.mark.parametrize(
    ("flags", "unknown"),
    [("1", "1"), ("hpss,x", "x"), ("hpss-ban=silly,hpssx,y", "hpssx"), ("hpss, hpssvfs", " hpssvfs")],
)
def test_what_is_not(flags: str, unknown: str) -> None:
    with pytest.raises(BadFlag) as caught:
        read([flags]).check("SMARTSERVER_DEBUG")
    assert str(caught.value) == (
        f"no such debug flag in SMARTSERVER_DEBUG: {unknown!r} "
        "(there are hpss, hpssdetail, hpssvfs, hpssbytes, hpss-json=FILE and hpss-ban=RULE[,RULE])"
    )


@pytest.mark.parametrize("parent", ["", "nonsense", "01-" + "1" * 32 + "-" + "2" * 16 + "-01", "00-" + "G" * 32])
def test_a_parent_that_is_none_begins_a_trace(tmp_path: Path, parent: str) -> None:
    tracing = Tracing(read([f"hpss-json={tmp_path / 'trace'}"]), print, "git", {"TRACEPARENT": parent})
    version, trace, process, sampled = tracing.traceparent.split("-")
    assert (version, len(trace), len(process), sampled) == ("00", 32, 16, "01")
    tracing.end()


@pytest.mark.parametrize("flag", ["hpss-ban=nonsense", "hpss-json=/nowhere/trace"])
def test_what_cannot_be_done_is_refused(flag: str) -> None:
    with pytest.raises(BadFlag):
        Tracing(read([flag]), print, "git", {})


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1234, "1.2 KB"),
        (999_949, "999.9 KB"),
        (999_950, "1.0 MB"),
        (999_999_999, "1.0 GB"),
        (2_500_000_000, "2.5 GB"),
        (7_000_000_000_000, "7.0 TB"),
        (7_000_000_000_000_000, "7000.0 TB"),
    ],
)
def test_size(count: int, shown: str) -> None:
    assert size(count) == shown


def test_summary_says_whose_link_is_not_counted() -> None:
    assert summary(Recorder(lambda: 5.0), 5.5, "sftp://h/srv/") == (
        "hpss: 0 round trips, 0 calls, 0 B up, 0 B down, 500 ms, all to a process of this machine; "
        "what that did at sftp://h/srv/ is not counted"
    )


DONE = Outcome(Status.DONE, msgspec.Raw(b"\x90"))
TICK = 0.02
"""Seconds within which the system says when a process began."""


def asking(*calls: tuple[str, list[object]], path: str = "project") -> bytes:
    """A request's payload."""
    listed = [Call(verb, msgspec.Raw(msgspec.msgpack.encode(arguments))) for verb, arguments in calls]
    return encode(RequestMessage(path, b"r" * 16, 0, listed))


def answer(*outcomes: Outcome, microseconds: int = 1500) -> bytes:
    """A reply's payload."""
    return encode(ReplyMessage(list(outcomes), counters=Counters(microseconds)))


class Dialog:
    """A client's wire with a recorder on it, a server's wire, and a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.finished: list[str] = []
        self.recorder = Recorder(lambda: self.now, lambda record: self.finished.append(line(record, record.started)))
        self.connect()

    def connect(self) -> None:
        self.recorder.connecting()
        self._client = Connection(Role.CLIENT, [self.recorder])
        self._server = Connection(Role.SERVER)

    def up(self, *events: Event) -> int:
        """The client sends these; bytes."""
        sent = b"".join(self._client.send(event) for event in events)
        self._server.receive_data(sent)
        while self._server.next_event() is not None:
            pass
        return len(sent)

    def down(self, *events: Event, after: float = 0.1) -> int:
        """The server sends these, and they come after so many seconds; bytes."""
        sent = b"".join(self._server.send(event) for event in events)
        self.now += after
        self._client.receive_data(sent)
        while self._client.next_event() is not None:
            pass
        return len(sent)

    @property
    def only(self) -> CallRecord:
        (record,) = self.recorder.calls
        return record


@pytest.fixture
def dialog() -> Dialog:
    return Dialog()


def test_a_call_and_its_answer(dialog: Dialog) -> None:
    up = dialog.up(Request(1, asking(("Branch.delete", [b"refs/heads/main"]))))
    down = dialog.down(Reply(1, answer(DONE)), after=0.25)
    assert dialog.finished == [
        f"hpss: Branch.delete(refs/heads/main) on project: ok, {up} B up, {down} B down, "
        "250 ms (1.5 ms in the server), at 0 ms"
    ]
    assert summary(dialog.recorder, dialog.now) == (
        f"hpss: 1 round trip on a fresh connection, 1 call (0 vfs), {up} B up, {down} B down, 250 ms"
    )


def test_a_body_that_comes_counts_and_lasts_until_its_end(dialog: Dialog) -> None:
    up = dialog.up(Request(1, asking(("Repository.pull", []))))
    down = dialog.down(Reply(1, answer(DONE), True), after=0.5)
    down += dialog.down(Body(1, bytes(100)), after=0.5)
    assert dialog.finished == []
    down += dialog.down(End(1, 1, 100), after=0.5)
    assert (dialog.only.bytes_up, dialog.only.bytes_down) == (up, down)
    assert dialog.only.ended - dialog.only.started == 1.5
    assert dialog.recorder.round_trips == 1
    assert dialog.finished == [
        f"hpss: Repository.pull() on project: ok, {up} B up, {down} B down, 1500 ms (1.5 ms in the server), at 0 ms"
    ]


def test_round_trips_are_the_times_this_side_waited(dialog: Dialog) -> None:
    for number in range(1, 4):
        dialog.up(Request(number, asking(("Server.ping", []))))
        dialog.down(Reply(number, answer(DONE)))
    assert dialog.recorder.round_trips == 3
    dialog.up(Request(4, asking(("Server.ping", []))), Request(5, asking(("Server.ping", []))))
    dialog.down(Reply(4, answer(DONE)), Reply(5, answer(DONE)))
    assert dialog.recorder.round_trips == 4
    dialog.down(GoAway(b"restarting"))
    assert dialog.recorder.round_trips == 4
    assert len(dialog.recorder.calls) == 5


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ([], ""),
        ([b"refs/heads/main", None, True, 7, "ff"], "refs/heads/main, None, True, 7, ff"),
        ([bytes.fromhex("c0ffee" + "00" * 17)], "c0ffee00"),
        ([b"\xff" * 1000], "1000 bytes"),
        ([[b"a", b"b"]], "[a, b]"),
        ([[b"a"] * 300], "[300]"),
        ([{"HEAD": b"refs/heads/main"}], "[HEAD]"),
        ([{str(number): 1 for number in range(5)}], "[5]"),
        ([[]], "[]"),
    ],
)
def test_arguments_are_shown_in_short(dialog: Dialog, arguments: list[object], shown: str) -> None:
    dialog.up(Request(1, asking(("Any.verb", arguments))))
    assert dialog.only.arguments == [shown]


@needs("/proc")
def test_the_age_of_a_process_is_no_more_than_the_time_it_was_there() -> None:
    program = "from smartserver.trace.recorder import since_start; print(since_start())"
    begun = time.monotonic()
    age = float(subprocess.check_output([sys.executable, "-c", program]))
    assert -TICK <= age <= time.monotonic() - begun + TICK


def test_what_the_server_does_after_its_reply_counts_as_its_work() -> None:
    spans = [
        ServerSpan("queued", "", 0, 100),
        ServerSpan("disk", "", 150, 250),
        ServerSpan("server", "read", 100, 300),
        ServerSpan("server", "read", 400, 450),
    ]
    assert busy(spans) == 250
    assert busy([]) == 0


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
