"""client.vfs_transport: its steps and files as calls; its promises are in simulated/test_vfs.py."""

from __future__ import annotations

import msgspec
import pytest
from scripted import ScriptedMedium, Server
from vfs_scripted import transport

from smartserver.client.url import BadUrl
from smartserver.client.vfs_transport import from_url
from smartserver.errors import NotDone
from smartserver.verbs import vfs
from smartserver.wire.events import Event, Reply, Request
from smartserver.wire.messages import Fault, Outcome, Status, encode, raw
from smartserver.wire.messages import Reply as ReplyMessage
from transports import steps
from transports.errors import NoSuchFile


def test_steps_before_the_one_that_fails_have_their_results() -> None:
    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            given = Outcome(Status.DONE, msgspec.Raw(msgspec.msgpack.encode(vfs.GetResult(1, b"x"))))
            absent = Outcome(Status.REFUSED, fault=Fault(NoSuchFile.code, raw({"path": "b"})))
            rest = Outcome(Status.NOT_DONE, fault=Fault(NotDone.code, raw({})))
            medium.say(Reply(event.id, encode(ReplyMessage([given, absent, rest]))))

    before, failing, after = steps.Get("a"), steps.ReadRanges("b", [(0, 1)]), steps.Get("c")
    with pytest.raises(NoSuchFile, match="'b'"):
        transport(Server([answering])).perform([before, failing, after])
    assert before.content == b"x"
    for step in (failing, after):
        with pytest.raises(LookupError):
            step.result  # noqa: B018


@pytest.mark.parametrize("url", ["vfs:///a", "vfs://host:x/", "hpss://host/", "vfs://me@host/"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(BadUrl):
        from_url(url)
