"""server.request_log, request_meters, logfmt, spans, progress: what the client and the log are told of a request."""

from __future__ import annotations

import json
import logging

import msgspec
import pytest
from builders import Clock
from dialogs import Dialog, Served, message, numbered
from session_calls import BODY, INSERT, PING, PULL, set_ref

from smartserver.meters import NOTHING
from smartserver.server import progress
from smartserver.server.access import Anonymous, anonymous
from smartserver.server.header import RequestHeader
from smartserver.server.logfmt import Field, logfmt
from smartserver.server.progress import RequestProgress
from smartserver.server.request_log import DONE, LOST, MAX_PATH, EndedRequest, log, slow
from smartserver.server.request_meters import BUCKETS, NO_VERB, Histogram, RequestMeters
from smartserver.server.spans import RequestSpans
from smartserver.server.work import RequestWork, ServedAnswer
from smartserver.spans import Part
from smartserver.verbs.declare import AnyVerb, Arguments
from smartserver.wire.events import Progress, Reply
from smartserver.wire.limits import MAX_SPANS
from smartserver.wire.messages import Reply as ReplyMessage
from smartserver.wire.messages import RequestFlag, decode_progress, decode_reply, raw

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
TOKEN = "hpss_a-token-that-nobody-may-read"


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
def test_what_is_no_trace_is_not_logged(served: Served, given: str) -> None:
    ended: list[EndedRequest] = []
    served.site.ended = ended.append
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


def test_a_request_whose_connection_ends_is_lost(served: Served, line: list[bytes]) -> None:
    ended: list[EndedRequest] = []
    served.site.ended = ended.append
    dialog = Dialog(served.site)
    dialog.begin(message(INSERT, set_ref(line[4]), flags=BODY))
    assert not ended
    dialog.session.connection_lost()
    (lost,) = ended
    assert (lost.outcome, lost.user) == (LOST, "tester")


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


def over(*calls: tuple[AnyVerb, Arguments], lasted: float = 0.0, outcomes: tuple[str, ...] = (DONE,)) -> EndedRequest:
    header = RequestHeader(message(*calls), calls, RequestFlag.NONE) if calls else None
    return EndedRequest("192.0.2.7:1", "anna", "", header, 1, 2, lasted, 0, 0, NOTHING, outcomes)


def test_a_request_counts_for_each_of_its_verbs_once() -> None:
    meters = RequestMeters()
    meters.add(over(PULL, lasted=0.5))
    meters.add(over(INSERT, set_ref(bytes(20)), set_ref(bytes(20)), lasted=2, outcomes=(DONE, DONE, "diverged")))
    meters.add(over(PULL, lasted=0.25, outcomes=("no-such-repository",)))
    meters.add(over(outcomes=("unsupported",)))
    counts = meters.counts(3)
    assert counts.outcomes == {
        "Repository.pull": {DONE: 1, "no-such-repository": 1},
        "Repository.insert_pack": {DONE: 1},
        "Branch.set_last_revision": {"diverged": 1},
        NO_VERB: {"unsupported": 1},
    }
    assert {verb: each.total for verb, each in counts.seconds.items()} == {
        "Repository.pull": 0.75,
        "Repository.insert_pack": 2,
        "Branch.set_last_revision": 2,
        NO_VERB: 0,
    }


def test_a_bucket_has_all_that_took_no_longer() -> None:
    histogram = Histogram()
    for seconds in (0.0, BUCKETS[0], 0.3, 1000.0):
        histogram.add(seconds)
    found = dict(histogram.buckets())
    assert list(found) == [*map(str, BUCKETS), "+Inf"]
    assert (found["0.001"], found["0.25"], found["0.5"], found["300.0"], found["+Inf"]) == (2, 2, 3, 3, 4)


def test_fields_in_their_order() -> None:
    assert logfmt({"path": "team/a+b", "up": 12, "ms": 0.5, "verbs": ["A.b", "C.d"]}) == (
        "path=team/a+b up=12 ms=0.5 verbs=A.b,C.d"
    )


@pytest.mark.parametrize(
    "value", ["a b", 'a" outcome=done', "a\nrequest user=root", "\x1b[2J", "\u202e", "ä", "a=b", ""]
)
def test_other_characters_make_a_json_string(value: str) -> None:
    fields: dict[str, Field] = {"path": value, "outcome": "refused"}
    line = logfmt(fields)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line.removeprefix("path=").removesuffix(" outcome=refused")) == value


def test_a_long_body_leaves_room_and_loses_nothing() -> None:
    """The pieces of a body, each after a wait, and then what comes after it."""
    clock = Clock(100.0)
    spans = RequestSpans(clock, tells=True)
    for number in range(MAX_SPANS * 10):
        spans.waited(clock())
        spans.began(Part.SERVER, "check")
        clock.now += 0.001
        spans.ended()
        clock.now += 0.002 + number * 0.0001
    spans.began(Part.DISK, "sync")
    clock.now += 0.005
    spans.ended()
    found = spans.take()
    assert len(found) <= MAX_SPANS
    assert (found[-1].part, found[-1].name, found[-1].end - found[-1].start) == ("disk", "sync", 5000)
    assert sum(each.end - each.start for each in found if each.name == "check") == MAX_SPANS * 10 * 1000
    assert max(each.end for each in found) <= round((clock() - 100) * 1e6)


@pytest.mark.parametrize("hides_cost", [False, True])
def test_nothing_is_told_where_the_cost_is_hidden(served: Served, hides_cost: bool) -> None:
    work = RequestWork(served.site, RequestProgress(served.site, lambda payload: None))
    work.spans = RequestSpans(served.site.clock, tells=True)
    work.hides_cost = hides_cost
    reply = decode_reply(work.encoded(ServedAnswer(ReplyMessage([]))).payload)
    assert (reply.trace is None) == hides_cost
    assert (work.server_trace({"tcp_rtt": 9}) is None) == hides_cost


def test_progress_is_said_twice_a_second(served: Served) -> None:
    dialog = Dialog(served.site)
    dialog.begin(message(INSERT, flags=RequestFlag.BODY))
    said: list[Progress] = []
    (made,) = dialog.session._requests.values()
    dialog.session.send = said.append  # type: ignore[method-assign, assignment]
    for done in range(10):
        made._progress.tell("upkeep", done, 10)
        served.ticks = served.ticks + progress.PROGRESS_INTERVAL / 2
    assert [decode_progress(event.payload).done for event in said] == [0, 2, 4, 6, 8]


def phases(dialog: Dialog) -> list[tuple[str, int, int]]:
    told = [decode_progress(event.payload) for event in dialog.heard if isinstance(event, Progress)]
    return [(each.phase, each.done, each.total) for each in told]


def test_a_small_push_says_nothing_unless_it_takes_long(served: Served, line: list[bytes]) -> None:
    dialog = Dialog(served.site)
    dialog.ask(message(INSERT, set_ref(line[4]), flags=RequestFlag.BODY), served.history.segment(line[4]), 1)
    assert [type(event) for event in dialog.heard] == [Reply]

    def advance() -> float:
        served.ticks += 0.15
        return served.ticks

    served.site.clock = advance
    slow = Dialog(served.site)
    body = served.history.segment(line[5])
    slow.ask(message(INSERT, set_ref(line[5]), request=numbered(2), flags=RequestFlag.BODY), body, 1)
    assert phases(slow) == [("commit", 0, 0)]
