"""server.work, server.request: what a client is told of a request that it traces."""

from __future__ import annotations

import pytest
from dialogs import Served

from smartserver.server.progress import RequestProgress
from smartserver.server.spans import RequestSpans
from smartserver.server.work import RequestWork, ServedAnswer
from smartserver.wire.messages import Reply as ReplyMessage
from smartserver.wire.messages import decode_reply


@pytest.mark.parametrize("hides_cost", [False, True])
def test_nothing_is_told_where_the_cost_is_hidden(served: Served, hides_cost: bool) -> None:
    work = RequestWork(served.site, RequestProgress(served.site, lambda payload: None))
    work.spans = RequestSpans(served.site.clock, tells=True)
    work.hides_cost = hides_cost
    reply = decode_reply(work.encoded(ServedAnswer(ReplyMessage([]))).payload)
    assert (reply.trace is None) == hides_cost
    assert (work.server_trace({"tcp_rtt": 9}) is None) == hides_cost
