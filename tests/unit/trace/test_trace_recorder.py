"""smartserver.trace.recorder: what a scripted dialog leaves in the record, and the exact lines of it."""

from __future__ import annotations

import subprocess
import sys
import time

import msgspec
import pytest
from needs import needs

from smartserver.trace.recorder import CallRecord, Recorder, busy
from smartserver.trace.text import line, summary
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Body, End, Event, GoAway, Reply, Request
from smartserver.wire.messages import Call, Counters, Outcome, ServerSpan, Status, encode
from smartserver.wire.messages import Reply as ReplyMessage
from smartserver.wire.messages import Request as RequestMessage

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
