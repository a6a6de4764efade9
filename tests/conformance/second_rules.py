"""What must hold of the second decoder's bytes besides that they can be read, from the same texts alone."""

from __future__ import annotations

from dataclasses import dataclass, field

import zstandard
from second_decoder import (
    BODY,
    END,
    ERROR,
    MAGIC,
    OBJECT,
    REPLY,
    REQUEST,
    WITH_BODY,
    Cursor,
    Exchange,
    Kinds,
    Record,
    Segment,
    must,
    read_frames,
)

PROGRESS, CANCEL, PING, PONG, GOAWAY = range(6, 11)
LONGEST = 262144
CLIENT = {REQUEST, REQUEST | WITH_BODY, BODY, END, CANCEL, PING, PONG}
SERVER = {REPLY, REPLY | WITH_BODY, ERROR, PROGRESS, BODY, END, PING, PONG, GOAWAY}
LIMITS = {END: 12, CANCEL: 0, PING: 64, PONG: 64, GOAWAY: 1024}


def obey_record(record: Record) -> None:
    must(
        record.encoding == 1 or (not record.form and len(record.frame) == record.length), "a stored record is its text"
    )
    if record.encoding == 1:
        head = zstandard.get_frame_parameters(MAGIC + record.frame)
        must(head.content_size == record.length and head.window_size <= 1 << 27, "a frame has the header's length")
        must(not head.has_checksum and not head.dict_id, "a frame has no checksum and no dictionary id")
        blocks, last = Cursor(MAGIC + record.frame), 0
        blocks.take(zstandard.frame_header_size(blocks.data))
        while not last:
            block = int.from_bytes(blocks.take(3), "little")
            last = block & 1
            blocks.take(1 if block >> 1 & 3 == 1 else block >> 3)
        must(blocks.at == blocks.end, "no bytes follow the last block")


def obey_segment(segment: Segment, kinds: Kinds) -> None:
    revision, parents = segment.revision, segment.parents
    must(0 < len(revision) <= 1024 and revision not in dict(parents), "a revision is not its own parent")
    for at, record in enumerate(segment.records):
        must((record.kind, record.key) not in {(r.kind, r.key) for r in segment.records[:at]}, "a key has one entry")
        must(not record.form or kinds[record.kind]["base"], "a base is of a kind with bases")
        must(record.base != record.key, "a record is not its own base")
        if record.form > 1 and record.form % 2:
            must(not parents[record.form // 2 - 1][1], "an absent parent is no base")
        elif record.form > 1:
            must(segment.records[record.form // 2 - 1].kind == record.kind, "a base is of the same kind")
        obey_record(record)


@dataclass
class Side:
    """What one side of a connection said of one request."""

    messages: list[int] = field(default_factory=list)  # their types, END among them; a long one counts once
    size: int = 0  # bytes of its body
    segments: int = 0  # as END says


def obey_side(data: bytes, speaker: set[int]) -> dict[int, Side]:
    """Prove all that one side of a connection sent; what it said of each request."""
    sides, going_on = dict[int, Side](), None
    for kind, request, payload in read_frames(data):
        must(len(payload) <= LONGEST, "a payload fits into a frame")
        if kind >= 0x80:
            continue
        must(kind in speaker and len(payload) <= LIMITS.get(kind, LONGEST), "a frame is one that this side may send")
        must((request == 0) == (kind in (PING, PONG, GOAWAY)), "a request has an id")
        side = sides.setdefault(request, Side())
        if kind & ~WITH_BODY in (REQUEST, REPLY, ERROR):
            must(going_on in (None, (kind, request)), "parts of two messages do not mix")
            going_on = (kind, request) if len(payload) == LONGEST else None
            side.messages += [] if going_on else [kind]
        elif kind == BODY:
            must(bool(side.messages) and bool(side.messages[-1] & WITH_BODY), "a body follows its message")
            side.size += len(payload)
        else:
            side.messages.append(kind)
        if kind == END:
            side.segments, size = Cursor(payload).unpack(">IQ")
            must(size == side.size, "END counts the bytes")
    must(going_on is None, "the last message is whole")
    return sides


WITHOUT, WITH = [REQUEST], [REQUEST | WITH_BODY]
REQUESTS = ([*WITHOUT], [*WITHOUT, CANCEL], [*WITH, END], [*WITH, CANCEL], [*WITH, END, CANCEL])
ANSWERS = ([REPLY], [ERROR], [REPLY | WITH_BODY, END], [REPLY | WITH_BODY, ERROR])


def obey_dialog(client: bytes, server: bytes, exchanges: list[Exchange]) -> None:
    """Prove the bytes that went each way over a connection whose requests are all over, and what was read of them."""
    asked, answered = obey_side(client, CLIENT), obey_side(server, SERVER)
    requests = [request for request in asked if request]
    must(requests == sorted(requests) and {0, *asked} >= answered.keys(), "ids ascend, and only they are answered")
    for request, exchange in zip(requests, exchanges, strict=True):
        ours, theirs = asked[request], answered[request]
        must(ours.messages in REQUESTS, "a request ends, and CANCEL is the last of it")
        must([kind for kind in theirs.messages if kind != PROGRESS] in ANSWERS, "there is one final answer")
        must(bool(ours.messages[0] & WITH_BODY) == bool(exchange.flags & 4), "BODY is said twice")
        counts = (len(exchange.up), len(exchange.down))
        must(counts == (ours.segments, theirs.segments), "END counts the segments")
        whole = len(exchange.outcomes) == len(exchange.calls)
        must(whole or (exchange.fault is not None and not exchange.outcomes), "each call has its outcome")
        for segment in exchange.up + exchange.down:
            obey_segment(segment, OBJECT)
