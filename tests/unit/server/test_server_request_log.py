"""server.request_log: the line of each request, and what server.request tells of it."""

from __future__ import annotations

import logging

import msgspec
import pytest
from builders import MAIN
from dialogs import PATH, Dialog, Served, message
from session_calls import BODY, INSERT, PING, PULL, set_ref

from smartserver.meters import NOTHING, READS
from smartserver.server.access import Anonymous, anonymous
from smartserver.server.header import RequestHeader
from smartserver.server.request_log import DONE, LOST, MAX_PATH, EndedRequest, log, log_request, outcomes_of, slow
from smartserver.verbs.branch_set_last_revision import branch_set_last_revision
from smartserver.wire.events import Cancel, Reply, Request
from smartserver.wire.messages import Failure, RequestFlag, decode_reply, encode, raw

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
TOKEN = "hpss_a-token-that-nobody-may-read"


@pytest.fixture
def ended(served: Served) -> list[EndedRequest]:
    """The requests that are over."""
    found: list[EndedRequest] = []
    served.site.ended = found.append
    return found


def test_what_a_pull_tells(served: Served, line: list[bytes], ended: list[EndedRequest]) -> None:
    dialog = Dialog(served.site)
    number = dialog.begin(message(PULL))
    body = dialog.body(number)
    assert body
    (pull,) = ended
    fields = pull.fields()
    assert pull.up == len(encode(message(PULL)))
    (payload,) = (event.payload for event in dialog.heard if isinstance(event, Reply))
    assert pull.down == len(payload) + len(body)
    assert (fields["path"], fields["verbs"]) == (PATH, ["Repository.pull"])
    assert "calls" not in fields
    assert (fields["user"], fields["from"], fields["outcome"]) == ("tester", "a test", DONE)
    assert pull.spent[READS] > decode_reply(payload).counters.reads > 0, "those for the body come after the reply"
    assert "trace" not in fields


def test_a_push_counts_its_body(served: Served, line: list[bytes], ended: list[EndedRequest]) -> None:
    request, body = message(INSERT, set_ref(line[4]), flags=BODY), served.history.segment(line[4])
    Dialog(served.site).ask(request, body, 1)
    (push,) = ended
    assert push.up == len(encode(request)) + len(body)
    assert push.verbs == {"Repository.insert_pack": DONE, "Branch.set_last_revision": DONE}
    fields = push.fields()
    assert fields["syncs"]
    assert fields["written"]


def test_times_are_told_apart(served: Served, ended: list[EndedRequest]) -> None:
    passed = iter([0.0, 1.0, 1.5, 3.5, 10.0])  # It arrives, may begin, begins, ends; and is answered.
    served.site.clock = lambda: next(passed)
    Dialog(served.site).ask(message(PING, path=""))
    (ping,) = ended
    assert (ping.lasted, ping.busy, ping.queued) == (10.0, 2.0, 0.5)
    fields = ping.fields()
    assert (fields["ms"], fields["busy_ms"], fields["queued_ms"]) == (10_000.0, 2000.0, 500.0)


def test_each_verb_has_its_outcome(served: Served, line: list[bytes], ended: list[EndedRequest]) -> None:
    other = b"refs/heads/other"
    flags = RequestFlag.NONE
    Dialog(served.site).ask(message(set_ref(line[1], MAIN), set_ref(line[2], other), PULL, flags=flags))
    Dialog(served.site).ask(message(set_ref(bytes(20), other)))
    refused = ended[-1]
    assert refused.outcome != DONE
    assert refused.verbs == {branch_set_last_revision.name: refused.outcome}


def test_the_first_error_is_the_outcome() -> None:
    calls = ((branch_set_last_revision, None), (branch_set_last_revision, None))
    header = RequestHeader(message(PING), calls, RequestFlag.NONE)  # type: ignore[arg-type]
    request = EndedRequest("peer", "", "", header, 0, 0, 0, 0, 0, NOTHING, [DONE, "diverged"])
    assert request.outcome == "diverged"
    assert request.verbs == {branch_set_last_revision.name: "diverged"}
    assert request._replace(header=None).verbs == {}


def test_neither_a_token_nor_anything_else_of_the_extras_is_logged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, log.name)
    extras = {"token": raw(TOKEN), "agent": raw("an agent"), "traceparent": raw(PARENT)}
    Dialog(served.site).ask(msgspec.structs.replace(message(PULL), extras=extras))
    Dialog(served.site, anonymous(Anonymous.NONE, local=True)).ask(
        msgspec.structs.replace(message(PULL), extras=extras)
    )
    assert len(caplog.messages) == 3  # The second is also told why.
    assert TOKEN not in caplog.text
    assert "an agent" not in caplog.text
    lines = [record.getMessage() for record in caplog.records if record.name == log.name]
    assert all(each.endswith(f" trace={TRACE}") for each in lines)


@pytest.mark.parametrize("given", ["x", PARENT + "\n", f"00-{TRACE.upper()}-00f067aa0ba902b7-01", f"a{PARENT}\x1b"])
def test_what_is_no_trace_is_not_logged(served: Served, ended: list[EndedRequest], given: str) -> None:
    Dialog(served.site).ask(msgspec.structs.replace(message(PING, path=""), extras={"traceparent": raw(given)}))
    assert "trace" not in ended[0].fields()


def test_a_hostile_path_makes_one_short_line(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, log.name)
    path = "a\nrequest user=root outcome=done\x1b[2J" + "x" * 10_000
    Dialog(served.site).ask(message(PULL, path=path))
    (text,) = caplog.messages
    assert "\n" not in text
    assert "\x1b" not in text
    assert len(text) < MAX_PATH + 300
    assert r'path="a\nrequest user=root outcome=done\u001b[2Jxx' in text


def test_a_request_whose_connection_ends_is_lost(served: Served, line: list[bytes], ended: list[EndedRequest]) -> None:
    dialog = Dialog(served.site)
    dialog.begin(message(INSERT, set_ref(line[4]), flags=BODY))
    assert not ended
    dialog.session.connection_lost()
    (lost,) = ended
    assert (lost.outcome, lost.user) == (LOST, "tester")


def test_a_request_is_logged_once(served: Served, line: list[bytes], ended: list[EndedRequest]) -> None:
    dialog = Dialog(served.site)
    number = dialog.begin(message(INSERT, set_ref(line[4]), flags=BODY))
    dialog.send(Cancel(number))
    dialog.send(Request(number + 1, b"no request"))
    dialog.session.connection_lost()
    assert [each.outcome for each in ended] == ["cancelled", "unsupported"]


def test_the_fields_go_with_the_record(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, log.name)
    request = EndedRequest("peer", "anna", "ssh", None, 1, 2, 0, 0, 0, NOTHING, ["unsupported"])
    log_request(request)
    (record,) = caplog.records
    assert vars(record)["fields"] == request.fields()
    assert record.getMessage() == "request user=anna by=ssh from=peer up=1 down=2 outcome=unsupported"


def test_a_refused_request_has_one_outcome(served: Served) -> None:
    answer = Dialog(served.site).ask(message(PULL, path="absent"))
    assert isinstance(answer, Failure)
    assert outcomes_of(answer) == ["no-such-repository"]


def test_a_slow_request_is_logged_with_what_took_long(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    served.site.slow = 0.0
    now = iter(range(1000))
    served.site.clock = lambda: next(now) / 100
    Dialog(served.site).ask(message(PULL))
    (text,) = [record.getMessage() for record in caplog.records if record.name == slow.name]
    assert text.startswith("slow request ")
    assert " verbs=Repository.pull " in text
    assert "answer:" in text.partition(" spans=")[2]
    served.site.slow = 1000.0
    caplog.clear()
    Dialog(served.site).ask(message(PULL))
    assert not caplog.records
