"""client.exchange: what a pull makes of each answer, said by a script. Whole flows are in `tests/simulated`."""

from __future__ import annotations

import pytest
from remotes import (
    TIP,
    remote,
    state,
)
from scripted import ScriptedMedium, Server, done

from smartserver.records.varint import Malformed
from smartserver.verbs.repository_pull import PullResult
from smartserver.wire.events import Body, End, Event, Reply, Request


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
