"""smartserver.trace.recorder: what a scripted dialog leaves in the record, and the exact lines of it."""

from __future__ import annotations

import subprocess
import sys
import time

import msgspec
import pytest
from needs import needs

from smartserver.errors import DivergedBranches
from smartserver.trace.recorder import CallRecord, Recorder, busy, since_start
from smartserver.trace.text import line, summary
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Body, Cancel, End, Error, Event, GoAway, Ping, Pong, Progress, Reply, Request
from smartserver.wire.messages import Call, Counters, Failure, Fault, Outcome, ServerSpan, Status, encode, raw
from smartserver.wire.messages import Progress as ProgressMessage
from smartserver.wire.messages import Reply as ReplyMessage
from smartserver.wire.messages import Request as RequestMessage

DONE = Outcome(Status.DONE, msgspec.Raw(b"\x90"))
ERROR = DivergedBranches(b"refs/heads/main", b"t" * 20)
FAULT = Fault(ERROR.code, raw(ERROR.wire_arguments()))

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


def test_a_refused_call_among_others(dialog: Dialog) -> None:
    dialog.up(Request(1, asking(("Branch.delete", [b"a"]), ("Branch.delete", [b"b"]))))
    dialog.down(Reply(1, answer(DONE, Outcome(Status.REFUSED, fault=FAULT))))
    assert dialog.only.result == "1 of 2 refused"


def test_a_refused_request(dialog: Dialog) -> None:
    dialog.up(Request(1, asking(("Branch.delete", [b"a"]))))
    dialog.down(Error(1, encode(Failure(FAULT, counters=Counters(2500)))))
    assert dialog.only.result == "diverged"
    assert dialog.only.server_microseconds == 2500
    assert dialog.finished == [line(dialog.only, dialog.only.started)]


def test_a_push_and_its_body_are_one_call_and_one_trip(dialog: Dialog) -> None:
    up = dialog.up(
        Request(1, asking(("Repository.insert_pack", []), ("Branch.delete", [b"a"])), body=True),
        Body(1, bytes(3000)),
        Body(1, bytes(2000)),
        End(1, 2, 5000),
    )
    down = dialog.down(Progress(1, encode(ProgressMessage("store", 1, 2))), after=1.0)
    down += dialog.down(Reply(1, answer(DONE, DONE)), after=1.0)
    assert (dialog.only.bytes_up, dialog.only.bytes_down) == (up, down)
    assert dialog.only.verbs == ["Repository.insert_pack", "Branch.delete"]
    assert dialog.only.ended - dialog.only.started == 2.0
    assert dialog.recorder.round_trips == 1
    assert dialog.finished[0].startswith("hpss: Repository.insert_pack(); Branch.delete(a) on project: ok, 5.")


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


def test_a_body_that_the_server_could_not_finish(dialog: Dialog) -> None:
    dialog.up(Request(1, asking(("Repository.pull", []))))
    dialog.down(Reply(1, answer(DONE), True), Body(1, bytes(100)))
    dialog.down(Error(1, encode(Failure(Fault("corrupt-file", raw({}))))))
    assert dialog.only.result == "corrupt-file"
    assert len(dialog.finished) == 1


def test_an_answer_in_parts_is_read_whole(dialog: Dialog) -> None:
    long = Outcome(Status.DONE, msgspec.Raw(msgspec.msgpack.encode(["x" * 600_000])))
    dialog.up(Request(1, asking(("Server.info", []))))
    dialog.down(Reply(1, answer(long)))
    assert dialog.only.result == "ok"
    assert len(dialog.finished) == 1
    assert dialog.only.payload == []


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


def test_what_is_of_no_request_counts_in_the_sum_alone(dialog: Dialog) -> None:
    up = dialog.up(Ping(b"a"))
    down = dialog.down(Pong(b"a"), Ping(b"b"))
    up += dialog.up(Pong(b"b"))
    assert (dialog.recorder.bytes_up, dialog.recorder.bytes_down) == (up, down)
    assert dialog.recorder.calls == []


def test_ids_of_a_new_connection_are_new_requests(dialog: Dialog) -> None:
    dialog.up(Request(1, asking(("Server.ping", []))))
    lost = dialog.only.bytes_up
    dialog.connect()
    dialog.up(Request(1, asking(("Server.info", []))))
    dialog.down(Reply(1, answer(DONE)))
    first, second = dialog.recorder.calls
    assert (first.result, first.bytes_up, first.bytes_down) == ("lost", lost, 0)
    assert (second.verbs, second.result) == (["Server.info"], "ok")
    assert dialog.recorder.connections == 2
    assert len(dialog.finished) == 2


def test_a_cancelled_request_keeps_its_bytes(dialog: Dialog) -> None:
    up = dialog.up(Request(1, asking(("Repository.insert_pack", [])), body=True), Body(1, b"abc"), Cancel(1))
    dialog.down(Error(1, encode(Failure(FAULT))))
    assert dialog.only.bytes_up == up


def test_verbs_without_a_group_are_calls_on_files(dialog: Dialog) -> None:
    dialog.up(Request(1, asking(("get", ["a/file"]))))
    dialog.up(Request(2, asking(("Server.ping", []))))
    assert [record.is_vfs for record in dialog.recorder.calls] == [True, False]
    assert dialog.recorder.vfs_calls == 1


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


def test_without_anybody_to_tell_it_only_records() -> None:
    recorder = Recorder(lambda: 1.0)
    wire = Connection(Role.CLIENT, [recorder])
    server = Connection(Role.SERVER)
    server.receive_data(wire.send(Request(1, asking(("Server.ping", [])))))
    assert server.next_event() is not None
    wire.receive_data(server.send(Reply(1, answer(DONE))))
    assert wire.next_event() is not None
    assert [record.result for record in recorder.calls] == ["ok"]


@needs("/proc")
def test_the_age_of_a_process_is_no_more_than_the_time_it_was_there() -> None:
    program = "from smartserver.trace.recorder import since_start; print(since_start())"
    begun = time.monotonic()
    age = float(subprocess.check_output([sys.executable, "-c", program]))
    assert -TICK <= age <= time.monotonic() - begun + TICK


def test_where_the_system_does_not_tell_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    assert since_start() is None


def test_what_the_server_does_after_its_reply_counts_as_its_work() -> None:
    spans = [
        ServerSpan("queued", "", 0, 100),
        ServerSpan("disk", "", 150, 250),
        ServerSpan("server", "read", 100, 300),
        ServerSpan("server", "read", 400, 450),
    ]
    assert busy(spans) == 250
    assert busy([]) == 0
