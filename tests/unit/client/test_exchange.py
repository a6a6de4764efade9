"""client.exchange: what a pull makes of each answer, said by a script. Whole flows are in `tests/simulated`."""

from __future__ import annotations

import pytest
from remotes import (
    OLD,
    OTHER,
    TIP,
    TOPIC,
    remote,
    saying,
    state,
)
from scripted import ScriptedMedium, Server, done, fault_of, reply

from smartserver.client.exchange import PullAnswer
from smartserver.errors import (
    AccessDenied,
    NoSuchBranch,
)
from smartserver.records.varint import Malformed
from smartserver.verbs.repository_pull import PullResult
from smartserver.wire.events import Body, End, Event, Reply, Request
from smartserver.wire.messages import Outcome as WireOutcome
from smartserver.wire.messages import Reply as ReplyMessage
from smartserver.wire.messages import Status, encode


def test_a_refused_pull_teaches_what_is_there() -> None:
    server = Server([saying((AccessDenied("pull", "not you"), state(OTHER, 9)))])
    there = remote(server, state(OLD))
    with pytest.raises(AccessDenied):
        there.pull()
    assert there.knowledge.tips() == [OTHER, OLD]


def test_a_pull_whose_call_is_refused_raises_its_error() -> None:
    outcome = WireOutcome(Status.REFUSED, fault=fault_of(NoSuchBranch(TOPIC)))
    server = Server([reply(encode(ReplyMessage([outcome], state(TIP))))])
    there = remote(server)
    with pytest.raises(NoSuchBranch):
        there.pull(refs=[TOPIC])
    assert there.knowledge.tips() == [TIP]


def test_a_pull_gives_its_result_and_teaches_the_refs() -> None:
    server = Server([reply(done(PullResult(), state=state(TIP)))])
    there = remote(server)
    pulled = there.pull([OLD])
    assert isinstance(pulled, PullAnswer)
    assert (pulled.result.segments, list(pulled.body)) == (0, [])
    assert there.knowledge.tips() == [TIP]


@pytest.mark.parametrize("wrong", [b"segments as they lie", b"\x28\xb5\x2f\xfd\x00"])
def test_a_pull_as_a_bulk_stream_that_is_none(wrong: bytes) -> None:
    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            medium.say(Reply(event.id, done(PullResult(1, 9), state=state(TIP)), body=True))
            medium.say(Body(event.id, wrong))
            medium.say(End(event.id, 1, len(wrong)))

    pulled = remote(Server([answering])).pull(bulk=True)
    with pytest.raises(Malformed, match="bulk stream"):
        list(pulled.body)
