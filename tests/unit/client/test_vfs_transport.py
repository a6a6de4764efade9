"""client.vfs_transport: its steps and files as calls; its promises are in simulated/test_vfs.py."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from scripted import ScriptedMedium, Server, done
from vfs_scripted import answers, sent, transport

from smartserver.client.url import BadUrl
from smartserver.client.vfs_transport import VfsTransport, from_url
from smartserver.errors import NotDone
from smartserver.verbs import vfs
from smartserver.verbs.declare import Result
from smartserver.wire.events import Event, Reply, Request
from smartserver.wire.messages import Fault, Outcome, Status, encode, raw
from smartserver.wire.messages import Reply as ReplyMessage
from transports import steps
from transports.base import Step, Transport
from transports.errors import NoSuchFile, TransportError
from transports.registry import open_url


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


@dataclass(eq=False, slots=True)
class Touch(Step):
    """A step of somebody else."""

    def do(self, transport: Transport) -> None:
        transport.make_directory(self.path)


def test_a_step_it_does_not_know_is_done_by_itself() -> None:
    """In its order among the others."""
    seen: list[str] = []

    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            seen.append(",".join(call.verb for call in medium.request.calls))
            medium.say(Reply(event.id, done(*[vfs.NoResult() for _ in medium.request.calls])))

    transport(Server([answering])).perform(
        [steps.MakeDirectory("a"), steps.MakeDirectory("b"), Touch("c"), steps.Put("d")]
    )
    assert seen == ["mkdir,mkdir", "mkdir", "put"]


def test_many_ranges_are_several_calls() -> None:
    count = vfs.MAX_RANGES + 1
    server = Server(
        [answers(vfs.ReadvResult([1] * vfs.MAX_RANGES, 9, b"x" * vfs.MAX_RANGES), vfs.ReadvResult([1], 9, b"y"))]
    )
    step = steps.ReadRanges("a", [(0, 1)] * count)
    transport(server).perform([step])
    assert step.result == [b"x"] * vfs.MAX_RANGES + [b"y"]
    assert [len(arguments[1]) for _, arguments in sent(server)] == [vfs.MAX_RANGES, 1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "result"),
    [("stat", vfs.StatResult(None)), ("get", vfs.GetResult(None)), ("list_directory", vfs.NamesResult(None))],
)
def test_nil_is_nothing_there(name: str, result: Result) -> None:
    with pytest.raises(NoSuchFile):
        getattr(transport(Server([answers(result)])), name)("a")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("vfs://example.org", "vfs://example.org:4155"),
        ("vfs://example.org:99/a/b/", "vfs://example.org:99/a/b"),
        ("VFS://[::1]/a%20b", "vfs://[::1]:4155/a b"),
    ],
)
def test_urls(url: str, name: str) -> None:
    opened = open_url(url)
    assert isinstance(opened, VfsTransport)
    assert opened.describe() == name
    assert opened.child("x").describe("y") == f"{name}/x/y"


@pytest.mark.parametrize("url", ["vfs:///a", "vfs://host:x/", "hpss://host/", "vfs://me@host/"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(BadUrl):
        from_url(url)


def test_what_is_written_is_not_sent_before_it_must_be() -> None:
    server = Server([answers(vfs.NoResult())])
    file = transport(server).create("new")
    file.write(b"abc")
    assert sent(server) == [("put", ["new"])]
    file.close()
    assert sent(server) == [("append", ["new", b"abc"])]
    file.close()
    with pytest.raises(TransportError, match="closed"):
        file.write(b"d")
