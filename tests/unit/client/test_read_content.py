"""client.content: a bulk stream as records, each proved; what is none is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from bzr_builders import KINDS, BzrHistory

from smartserver.client.content import RecordGroup, read_content
from smartserver.client.medium import ConnectionLost
from smartserver.records.bulk import BulkWriter
from smartserver.records.check import make_check
from smartserver.records.delta import compress
from smartserver.records.model import BaseTag, Entry, Parent, Record
from smartserver.records.segment import STORED, ZSTD, encode_segment
from smartserver.wire.errors import RemoteProtocolError

HISTORY = BzrHistory()
LINE = HISTORY.line(2)
RECORDS = tuple(HISTORY.records[place] for place in HISTORY.introduced[LINE[1]])
PARENTS = (Parent(LINE[0]), Parent(b"a ghost", absent=True))


def entry(record: Record, **changes: Any) -> Entry:
    check = make_check(KINDS[record.kind], record.key, record.meta, record.text)
    size = len(record.text)
    made = Entry(record.kind, STORED, record.key, record.meta, BaseTag.NONE, b"", size, size, check)
    replaced: Entry = made._replace(**changes)
    return replaced


def segment(entries: Iterable[Entry], frames: Iterable[bytes]) -> bytes:
    return encode_segment(LINE[1], PARENTS, list(entries), list(frames), KINDS)


WHOLE = segment(map(entry, RECORDS), [record.text for record in RECORDS])


def body(*texts: bytes) -> list[bytes]:
    writer = BulkWriter()
    return [*[writer.add(text) for text in texts], writer.finish()]


def parts(chunks: Iterable[bytes]) -> list[RecordGroup]:
    return list(read_content(chunks, KINDS))


def test_parts_come_as_the_body_does() -> None:
    def cut() -> Iterable[bytes]:
        import zstandard

        made = zstandard.ZstdCompressor(write_checksum=True).compressobj()
        yield made.compress(WHOLE) + made.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        raise ConnectionLost("cut")

    came = read_content(cut(), KINDS)
    assert next(came).revision == LINE[1]
    with pytest.raises(ConnectionLost):
        next(came)


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
    ],
)
def test_garbage(chunks: list[bytes]) -> None:
    with pytest.raises(RemoteProtocolError, match="expected records"):
        parts(chunks)


def test_a_record_that_is_not_what_it_says() -> None:
    for record in RECORDS:
        other = record.text + b"x"
        wrong = entry(record, length=len(other), frame_length=len(other))
        with pytest.raises(RemoteProtocolError, match="expected records"):
            parts(body(segment([wrong], [other])))


def test_a_record_that_is_not_whole() -> None:
    record = max(RECORDS, key=lambda each: len(each.text))
    frame = compress(record.text)[1]
    packed = entry(record, encoding=ZSTD, frame_length=len(frame))
    with pytest.raises(RemoteProtocolError, match="not whole"):
        parts(body(segment([packed], [frame])))
    based = entry(record, encoding=ZSTD, frame_length=len(frame), base=BaseTag.FULL_KEY, base_key=b"k")
    with pytest.raises(RemoteProtocolError, match="not whole"):
        parts(body(segment([based], [frame])))
