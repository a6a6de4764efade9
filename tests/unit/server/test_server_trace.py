"""server.work, server.request: what a client is told of a request that it traces."""

from __future__ import annotations

import msgspec
import pytest
from dialogs import Dialog, Served, message
from session_calls import PULL

from smartserver.meters import FILES_READ, METERS, Unit
from smartserver.server.progress import RequestProgress
from smartserver.server.spans import RequestSpans
from smartserver.server.work import ServedAnswer, Work
from smartserver.store.repository import PackRepository
from smartserver.wire.events import End, Reply
from smartserver.wire.messages import REPACKED, ServerTrace, decode_reply, decode_server_trace, raw
from smartserver.wire.messages import Reply as ReplyMessage

SAMPLED = f"00-{'4bf92f3577b34da6a3ce929d0e0e4736'}-00f067aa0ba902b7-01"


def traces_of_pull(dialog: Dialog, parent: str = SAMPLED) -> tuple[ServerTrace | None, ServerTrace | None]:
    """What its REPLY has of it, and its END."""
    dialog.ask(msgspec.structs.replace(message(PULL), extras={"traceparent": raw(parent)}))
    (reply,) = [each for each in dialog.heard if isinstance(each, Reply)]
    (end,) = [each for each in dialog.heard if isinstance(each, End)]
    return decode_reply(reply.payload).trace, decode_server_trace(end.trace)


def test_a_request_that_is_not_traced(served: Served) -> None:
    assert traces_of_pull(Dialog(served.site), SAMPLED[:-1] + "0") == (None, None)


def test_the_end_tells_the_rest_of_the_spans_and_all_counts(served: Served) -> None:
    before, after = traces_of_pull(Dialog(served.site))
    assert before is not None
    assert after is not None
    assert [each.name for each in after.spans if each.part == "server"][-1] == "read"
    assert {each.name for each in before.spans} == {"", "answer"}
    assert after.counts[METERS[FILES_READ].name] >= before.counts[METERS[FILES_READ].name] > 0
    assert not {meter.name for meter in METERS if meter.unit is Unit.SECONDS} & after.counts.keys()


def test_sums_of_the_kernel_are_those_of_the_request(served: Served) -> None:
    said = iter([{"packets": 7, "rtt": 90, "delays": 0}, {"packets": 9, "rtt": 80, "delays": 0}])
    dialog = Dialog(served.site)
    dialog.session.link = lambda: next(said)
    _, after = traces_of_pull(dialog)
    assert after is not None
    assert {name: count for name, count in after.counts.items() if name.startswith("tcp_")} == {
        "tcp_packets": 2,
        "tcp_rtt": 80,
        "tcp_delays": 0,
    }


@pytest.mark.parametrize(("is_repacking", "told"), [(True, 1), (False, None)])
def test_a_repack_meanwhile_is_told(
    served: Served, monkeypatch: pytest.MonkeyPatch, is_repacking: bool, told: int | None
) -> None:
    monkeypatch.setattr(PackRepository, "is_repacking", is_repacking)
    _, after = traces_of_pull(Dialog(served.site))
    assert after is not None
    assert after.counts.get(REPACKED) == told


@pytest.mark.parametrize("hides_cost", [False, True])
def test_nothing_is_told_where_the_cost_is_hidden(served: Served, hides_cost: bool) -> None:
    work = Work(served.site, RequestProgress(served.site, lambda payload: None))
    work.spans = RequestSpans(served.site.clock, tells=True)
    work.hides_cost = hides_cost
    reply = decode_reply(work.encoded(ServedAnswer(ReplyMessage([]))).payload)
    assert (reply.trace is None) == hides_cost
    assert (work.server_trace({"tcp_rtt": 9}) is None) == hides_cost


def test_a_repack_that_begins_during_a_step_is_told_with_its_reply(served: Served) -> None:
    work = Work(served.site, RequestProgress(served.site, lambda payload: None))
    work.spans = RequestSpans(served.site.clock, tells=True)
    work.is_repacking = lambda: True
    trace = decode_reply(work.encoded(ServedAnswer(ReplyMessage([]))).payload).trace
    assert trace is not None
    assert trace.counts == {REPACKED: 1}
