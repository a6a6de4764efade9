"""client.exchange, listing, faults, updates, plain, vfs_link: what is made of answers, and shown of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

import pytest
from bzr_builders import KINDS, BzrHistory
from scripted import (
    TIP,
    Answering,
    ScriptedMedium,
    Server,
    done,
    remote,
    saying,
    state,
)

from smartserver.client import listing
from smartserver.client.exchange import read_graph
from smartserver.client.faults import MOST_FAULTS, lines
from smartserver.client.listing import repositories
from smartserver.client.medium import ConnectionLost
from smartserver.client.plain import plain, plain_lines
from smartserver.client.updates import (
    MapUpdateOutcome,
    Outcome,
    PushOutcome,
    RefUpdate,
    UpdateOutcome,
)
from smartserver.client.url import BadUrl
from smartserver.client.vfs_link import VfsLink
from smartserver.client.vfs_transport import VfsTransport, from_url
from smartserver.errors import NotDone, StaleEntry, StaleLease
from smartserver.records.bulk import BulkWriter
from smartserver.records.model import GraphNode, Parent
from smartserver.records.segment import encode_segment
from smartserver.records.varint import Malformed
from smartserver.verbs import vfs
from smartserver.verbs.declare import Result
from smartserver.verbs.map_update import MapKind, MapUpdateRequest
from smartserver.verbs.repository_list import ListResult, RepositoryField
from smartserver.verbs.repository_pull import PullResult
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.events import Body, End, Event, Reply, Request
from smartserver.wire.messages import Advice, raw
from transports import steps
from transports.base import Step
from transports.errors import CodedError, TransportFailed


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


HISTORY = BzrHistory()
LINE = HISTORY.line(2)
NODE = GraphNode(LINE[1], (Parent(LINE[0]), Parent(b"a ghost", absent=True)))
WHOLE = encode_segment(NODE.revision, NODE.parents, [], [], KINDS)


def bulk(*texts: bytes) -> list[bytes]:
    writer = BulkWriter()
    return [*[writer.add(text) for text in texts], writer.finish()]


def nodes(chunks: Iterable[bytes]) -> list[GraphNode]:
    return list(read_graph(chunks, KINDS))


def test_ids_and_parents_come_as_the_body_does() -> None:
    def cut() -> Iterable[bytes]:
        import zstandard

        made = zstandard.ZstdCompressor(write_checksum=True).compressobj()
        yield made.compress(WHOLE) + made.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        raise ConnectionLost("cut")

    came = read_graph(cut(), KINDS)
    assert next(came) == NODE
    with pytest.raises(ConnectionLost):
        next(came)
    assert nodes([]) == []


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([b"hello"], id="no stream"),
        pytest.param(bulk(b"hello, this is no segment"), id="no segment"),
        pytest.param(bulk(WHOLE[:-1]), id="half a segment"),
        pytest.param(bulk(WHOLE, b"\5"), id="something after it"),
        pytest.param(bulk(WHOLE)[:1], id="half a stream"),
        pytest.param([*bulk(WHOLE), b"x"], id="something after the stream"),
        pytest.param([b"".join(bulk(WHOLE))[:-2] + b"xx"], id="another checksum"),
        pytest.param(bulk(HISTORY.segment(LINE[1])), id="records"),
    ],
)
def test_what_is_no_graph(chunks: list[bytes]) -> None:
    with pytest.raises(RemoteProtocolError, match="expected ids and parents"):
        nodes(chunks)


def page(*paths: str, more: bool = True) -> bytes:
    return done(ListResult([RepositoryField(path, "git sha1", 0) for path in paths], more))


@pytest.mark.parametrize("pages", [[[]], [["a"], []], [["a"], ["a"]], [["b"], ["a"]], [["a/b"], ["a"]]])
def test_a_server_that_has_more_and_tells_nothing_new(pages: list[list[str]]) -> None:
    server = Server([saying(*[page(*paths) for paths in pages])])
    with server.client() as client, pytest.raises(RemoteProtocolError, match="which the server announced, got none"):
        list(repositories(client, "", refs=False))


@pytest.mark.parametrize("ends", [True, False])
def test_a_server_that_has_always_more(monkeypatch: pytest.MonkeyPatch, ends: bool) -> None:
    monkeypatch.setattr(listing, "MOST_ANSWERS", 3)
    server = Server([saying(page("a"), page("aa"), page("aaa", more=not ends), page("aaaa", more=False))])
    with server.client() as client, contextlib.ExitStack() as stack:
        if not ends:
            stack.enter_context(pytest.raises(RemoteProtocolError, match="3 answers: list one folder at a time"))
        assert [each.path for each in repositories(client, "", refs=False)] == ["a", "aa", "aaa"]


def line(faults: object) -> list[str]:
    return list(lines([Advice("faults", raw({"faults": faults}))], "hpss://h:1/p", "git fsck"))


def test_each_fault_is_named_with_its_first_record() -> None:
    (said,) = line({"badTimezone": [3, "ab12"], "zeroPaddedFilemode": [1, "cd34"], "other": "odd"})
    faults = "badTimezone in ab12 and 2 more, zeroPaddedFilemode in cd34, other"
    assert said == f"hpss: hpss://h:1/p: taken with faults that git fsck finds: {faults}"
    (said,) = line({f"fault{number}": [1, "ab"] for number in range(99)})
    assert said.count(" in ab") == MOST_FAULTS


@pytest.mark.parametrize(
    "advice", [Advice("moon", raw({"faults": {"x": 1}})), Advice("faults", raw({})), Advice("faults", raw([1]))]
)
def test_what_is_not_known_here_is_not_shown(advice: Advice) -> None:
    assert list(lines([advice], "hpss://h:1/p", "git fsck")) == []
    assert line({}) == []


MOVE = RefUpdate(b"trunk", b"new", expected=b"old")
TAGS = MapUpdateRequest("tags", MapKind.IDS, [])


NOT_DONE, LEASE, ENTRY = NotDone(), StaleLease(b"trunk", b"a", b"b"), StaleEntry("tags", b"one")


@pytest.mark.parametrize(
    ("refs", "maps", "expected"),
    [
        ([], [], None),
        ([None], [None, None], None),
        ([NOT_DONE], [NOT_DONE, ENTRY], ENTRY),
        ([LEASE], [NOT_DONE], LEASE),
        ([LEASE], [ENTRY], LEASE),
        ([NOT_DONE], [NOT_DONE], NOT_DONE),
    ],
)
def test_what_says_why(
    refs: list[CodedError | None], maps: list[CodedError | None], expected: CodedError | None
) -> None:
    pushed = PushOutcome(
        [UpdateOutcome(MOVE, Outcome.REFUSED if each else Outcome.DONE, error=each) for each in refs],
        [MapUpdateOutcome(TAGS, [], each) for each in maps],
    )
    assert pushed.error() is expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("größer\n\nb\n", "größer\n\nb\n"),
        ("a\n\x1b[2J\x1b]0;title\x07\r\nb\x9b1m\u202e\u200b\udcff", "a\n [2J ]0;title  \nb 1m   "),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert plain_lines(text) == shown
    assert plain(text) == shown.replace("\n", " ")


def transport(server: Server) -> VfsTransport:
    return VfsTransport(VfsLink(server.client(), "base", "vfs://test/base"))


def answers(*results: Result, body: bytes | None = None) -> Answering:
    """Say this to a whole request."""

    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, End) or (isinstance(event, Request) and not event.body):
            medium.say(Reply(event.id, done(*results), body=body is not None))
            if body is not None:
                medium.say(Body(event.id, body), End(event.id, 0, len(body)))

    return answering


@pytest.mark.parametrize(("body", "what"), [(b"ab", "1 more bytes"), (b"abcd", "got 1 bytes"), (None, "3 more bytes")])
def test_a_body_of_another_length_breaks_the_rules(body: bytes | None, what: str) -> None:
    server = Server([answers(vfs.GetResult(3), body=body)])
    with pytest.raises(TransportFailed, match=what):
        transport(server).get("a")


def read() -> Step:
    return steps.ReadRanges("a", [(0, 2), (5, 1)])


@pytest.mark.parametrize(
    ("asked", "result", "what"),
    [
        (lambda: steps.Get("a"), vfs.GetResult(3, b"ab"), "expected 3 bytes of a file, got 2"),
        (lambda: steps.Get("a"), vfs.GetResult(3, b"abcd"), "expected 3 bytes of a file, got 4"),
        (lambda: steps.Get("a"), vfs.GetResult(None, b"a"), "expected 0 bytes of a file, got 1"),
        (lambda: steps.Get("a"), vfs.GetResult(-1), "got -1"),
        (read, vfs.ReadvResult([2], 9, b"ab"), "expected the sizes of 2 ranges of a file, got 1"),
        (read, vfs.ReadvResult([2, 1, 0], 9, b"abc"), "expected the sizes of 2 ranges of a file, got 3"),
        (read, vfs.ReadvResult([2, 2], 9, b"abcd"), "expected 0 to 1 bytes of a file, got 2"),
        (read, vfs.ReadvResult([2, -1], 9, b"a"), "expected 0 to 1 bytes of a file, got -1"),
        (read, vfs.ReadvResult([2, 1], 9, b"ab"), "expected 3 bytes of a file, got 2"),
        (lambda: steps.GetStat("a"), vfs.StatResult("folder"), "expected one of directory, file, other, got 'folder'"),
    ],
)
def test_an_answer_to_another_question_breaks_the_rules(asked: Callable[[], Step], result: Result, what: str) -> None:
    """And the connection is not used again."""
    server = Server([answers(result), answers(vfs.HasResult(True))])
    files = transport(server)
    with pytest.raises(TransportFailed, match=what):
        files.perform([asked()])
    assert files.exists("a")
    assert [each.closed for each in server.connections] == [1, 0]


def test_it_closes_its_connection_when_nobody_has_it_any_more() -> None:
    server = Server([answers(vfs.HasResult(True))] * 2)
    one = transport(server)
    assert one.exists("a")
    child = one.child("b")
    del one
    assert child.exists("c")
    assert server.connections[0].closed == 0
    del child
    assert server.connections[0].closed == 1


@pytest.mark.parametrize("url", ["vfs:///a", "vfs://host:x/", "hpss://host/", "vfs://me@host/"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(BadUrl):
        from_url(url)
