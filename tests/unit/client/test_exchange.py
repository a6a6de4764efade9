"""client.exchange: what a pull makes of each answer, said by a script. Whole flows are in `tests/simulated`."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from bzr_builders import KINDS, BzrHistory
from remotes import (
    TIP,
    remote,
    state,
)
from scripted import ScriptedMedium, Server, done

from smartserver.client.exchange import read_graph
from smartserver.client.medium import ConnectionLost
from smartserver.records.bulk import BulkWriter
from smartserver.records.model import GraphNode, Parent
from smartserver.records.segment import encode_segment
from smartserver.records.varint import Malformed
from smartserver.verbs.repository_pull import PullResult
from smartserver.wire.errors import RemoteProtocolError
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


def test_no_body_is_no_graph() -> None:
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
