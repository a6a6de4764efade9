"""server.receiving: what is kept of a body, and when it is given up."""

from __future__ import annotations

import pytest
from dialogs import Served, message, numbered
from session_calls import INSERT, set_ref

from smartserver.errors import AccessDenied, LimitExceeded, Unsupported
from smartserver.records.segment import encode_graph
from smartserver.server.access import Anonymous, anonymous
from smartserver.server.asked import Asked
from smartserver.server.dispatch import Refused, prepare
from smartserver.server.receiving import Receiving
from smartserver.wire.messages import RequestFlag


def receiving(
    served: Served,
    tip: bytes,
    flags: RequestFlag = RequestFlag.NONE,
    allowed: Anonymous = Anonymous.WRITE,
    phases: list[str] | None = None,
) -> Receiving:
    asked = message(INSERT, set_ref(tip), flags=RequestFlag.BODY | flags, request=numbered(7))

    def progress(phase: str, done: int, total: int) -> None:
        if phases is not None:
            phases.append(phase)

    return Receiving(Asked(served.site, anonymous(allowed, local=True), prepare(asked), progress))


def test_what_came_is_the_callers_once_it_is_whole(served: Served, line: list[bytes]) -> None:
    phases: list[str] = []
    made, body = receiving(served, line[5], phases=phases), served.history.body(line[4:6])
    for at in range(0, len(body), 50):
        made.take(body[at : at + 50])
    upload = made.finish(2, len(body))
    assert phases == ["store"]
    made.abandon()
    assert upload.entry is not None
    assert upload.entry.segments == 2
    assert any("incoming/" in path for path in served.files())
    upload.abandon()


def test_what_is_given_up_leaves_nothing(served: Served, line: list[bytes]) -> None:
    before = served.files()
    made = receiving(served, line[5])
    made.take(served.history.body(line[4:5]))
    assert served.files() != before
    made.abandon()
    made.abandon()
    assert [path for path in served.files() if path not in before] == []


def test_nothing_is_kept_for_who_may_not_write(served: Served, line: list[bytes]) -> None:
    before = served.files()
    made = receiving(served, line[5], allowed=Anonymous.READ)
    with pytest.raises(AccessDenied):
        made.take(served.history.body(line[4:6]))
    assert served.files() == before


def test_an_announced_graph_is_judged_before_the_segments(served: Served, line: list[bytes]) -> None:
    other = served.history.line(1, None, "other")
    made = receiving(served, other[0], RequestFlag.GRAPH_FIRST)
    graph = encode_graph([served.history.announced(other[0])])
    made.take(graph[:-1])
    with pytest.raises(Refused) as refused:
        made.take(graph[-1:])
    outcomes = [each.fault.code for each in refused.value.outcomes if each.fault is not None]
    assert outcomes == ["not-done", "diverged"]
    made.abandon()


def test_a_check_brings_its_graph_and_nothing_else(served: Served, line: list[bytes]) -> None:
    before = served.files()
    graph = encode_graph([served.history.announced(line[4])])
    made = receiving(served, line[4], RequestFlag.CHECK_ONLY | RequestFlag.GRAPH_FIRST)
    with pytest.raises(Unsupported):
        made.graph()
    made.take(graph)
    assert made.graph() == [served.history.announced(line[4])]
    with pytest.raises(LimitExceeded):
        made.take(served.history.segment(line[4]))
    assert served.files() == before
