"""client.exchange: a bulk stream as ids and parents; what is none is refused."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from bzr_builders import KINDS, BzrHistory

from smartserver.client.exchange import read_graph
from smartserver.client.medium import ConnectionLost
from smartserver.records.bulk import BulkWriter
from smartserver.records.model import GraphNode, Parent
from smartserver.records.segment import encode_segment
from smartserver.wire.errors import RemoteProtocolError

HISTORY = BzrHistory()
LINE = HISTORY.line(2)
NODE = GraphNode(LINE[1], (Parent(LINE[0]), Parent(b"a ghost", absent=True)))
WHOLE = encode_segment(NODE.revision, NODE.parents, [], [], KINDS)


def body(*texts: bytes) -> list[bytes]:
    writer = BulkWriter()
    return [*[writer.add(text) for text in texts], writer.finish()]


def nodes(chunks: Iterable[bytes]) -> list[GraphNode]:
    return list(read_graph(chunks, KINDS))


def test_they_come_as_the_body_does() -> None:
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
        pytest.param(body(b"hello, this is no segment"), id="no segment"),
        pytest.param(body(WHOLE[:-1]), id="half a segment"),
        pytest.param(body(WHOLE, b"\5"), id="something after it"),
        pytest.param(body(WHOLE)[:1], id="half a stream"),
        pytest.param([*body(WHOLE), b"x"], id="something after the stream"),
        pytest.param([b"".join(body(WHOLE))[:-2] + b"xx"], id="another checksum"),
        pytest.param(body(HISTORY.segment(LINE[1])), id="records"),
    ],
)
def test_garbage(chunks: list[bytes]) -> None:
    with pytest.raises(RemoteProtocolError, match="expected ids and parents"):
        nodes(chunks)
