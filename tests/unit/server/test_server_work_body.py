"""server.work: what is kept of a body, and when it is given up."""

from __future__ import annotations

import pytest
from dialogs import Served, message, numbered
from session_calls import INSERT, set_ref

from smartserver.errors import CorruptRecord, LimitExceeded
from smartserver.records.bulk import BulkWriter
from smartserver.records.segment import encode_graph
from smartserver.records.varint import Malformed
from smartserver.server.access import Anonymous, anonymous
from smartserver.server.context import RequestContext
from smartserver.server.header import RequestFailure, check_header
from smartserver.server.progress import RequestProgress
from smartserver.server.work import RequestWork
from smartserver.wire.limits import BULK_ALLOWANCE, MAX_BULK_RATIO
from smartserver.wire.messages import RequestFlag


def receiving(served: Served, tip: bytes, flags: RequestFlag) -> RequestWork:
    header = check_header(message(INSERT, set_ref(tip), flags=RequestFlag.BODY | flags, request=numbered(7)))
    work = RequestWork(served.site, RequestProgress(served.site, lambda payload: None))
    user = anonymous(Anonymous.WRITE, local=True)
    work.running = RequestContext(served.site, user, header, lambda *_: None)
    return work


def test_an_announced_graph_is_judged_before_the_segments(served: Served, line: list[bytes]) -> None:
    other = served.history.line(1, None, "other")
    made = receiving(served, other[0], RequestFlag.GRAPH_FIRST)
    graph = encode_graph([served.history.announced(other[0])])
    made.take(graph[:-1])
    with pytest.raises(RequestFailure) as refused:
        made.take(graph[-1:])
    outcomes = [each.fault.code for each in refused.value.outcomes if each.fault is not None]
    assert outcomes == ["not-done", "diverged"]
    made.abandon()


def packed(*texts: bytes) -> bytes:
    writer = BulkWriter()
    return b"".join([writer.add(text) for text in texts]) + writer.finish()


def test_a_bulk_stream_must_be_whole(served: Served, line: list[bytes]) -> None:
    plain = served.history.body(line[4:6])
    body = packed(plain)
    for came in (b"", body[:-1], packed(served.history.body(line[4:6])[:-1])):
        made = receiving(served, line[5], RequestFlag.BULK)
        made.take(came)
        with pytest.raises((Malformed, CorruptRecord)):
            made.finish(2, len(came))
        made.abandon()
    for wrong in (body + b"x", plain, body[:30] + bytes([body[30] ^ 0x55]) + body[31:]):
        made = receiving(served, line[5], RequestFlag.BULK)
        with pytest.raises((Malformed, CorruptRecord)):  # noqa: PT012
            made.take(wrong)
            made.finish(2, len(wrong))
        made.abandon()
    for segments, size in ((2, len(plain)), (1, len(body))):
        made = receiving(served, line[5], RequestFlag.BULK)
        made.take(body)
        with pytest.raises(CorruptRecord, match="its end says"):
            made.finish(segments, size)
        made.abandon()


def test_little_that_says_much_is_refused(served: Served, line: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is kept: nothing of a stream is worth more than its bytes can be."""
    kept = 0

    def write(upload: object, content: bytes) -> None:
        nonlocal kept
        kept += len(content)

    monkeypatch.setattr("smartserver.store.upload.Upload.write", write)
    bomb = packed(*[bytes(1 << 20)] * 64)
    assert len(bomb) * 1000 < 64 << 20
    made = receiving(served, line[5], RequestFlag.BULK)
    with pytest.raises(LimitExceeded, match="that a bulk stream became"):
        made.take(bomb)
    assert kept <= (len(bomb) + BULK_ALLOWANCE) * MAX_BULK_RATIO
    made.abandon()


def test_the_limit_of_a_segment_counts_what_a_bulk_stream_says(
    served: Served, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smartserver.store.upload.MAX_TAKEN", 1000)
    made = receiving(served, line[5], RequestFlag.BULK)
    with pytest.raises(LimitExceeded, match="bytes of a segment"):
        made.take(packed(b"\xe9\x07" + bytes(2000)))
    made.abandon()


def test_a_stored_revision_may_come_but_once(served: Served, line: list[bytes]) -> None:
    """A stream that says one segment a million times is small; a list of them is not."""
    made = receiving(served, line[5], RequestFlag.BULK)
    with pytest.raises(CorruptRecord, match="twice"):
        made.take(packed(*[served.history.segment(line[2])] * 2))
    made.abandon()
