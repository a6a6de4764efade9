"""What must hold of the second decoder's bytes besides that they can be read, from the same texts alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import zstandard
from second_bulk import MAGIC
from second_decoder import (
    BODY,
    END,
    ERROR,
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


def integer(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value % 128 + 128]) + integer(value // 128)


class HasText(Protocol):
    """A record that was decoded."""

    kind: int
    key: bytes
    meta: bytes
    text: bytes


def bencoded(text: bytes, at: int = 0) -> tuple[Any, int]:
    """Read one value in bencode; it and where it ends."""
    if (kind := text[at : at + 1]) == b"i":
        return int(text[at + 1 : (end := text.index(b"e", at))]), end + 1
    if kind not in (b"l", b"d"):
        start = text.index(b":", at) + 1
        return text[start : (end := start + int(text[at : start - 1]))], end
    found, at = [], at + 1
    while text[at : at + 1] != b"e":
        value, at = bencoded(text, at)
        found.append(value)
    return found, at + 1


def parents_of(vcs: str, own: HasText) -> list[bytes]:
    """The parents that the record of a revision names."""
    if vcs == "bzr 2a":
        fields, end = bencoded(own.text)
        named: dict[bytes, Any] = dict(fields)
        must(end == len(own.text) and named[b"format"] == 10 and named[b"revision-id"] == own.key, "a revision's text")
        return list(named[b"parent-ids"])
    lines = own.text.partition(b"\n\n")[0].split(b"\n")
    if own.meta == b"\1":
        return [bytes.fromhex(line[7:].decode()) for line in lines if line.startswith(b"parent ")]
    if own.meta == b"\4" and lines[1] in (b"type commit", b"type tag"):
        return [bytes.fromhex(lines[0][7:].decode())]
    return []


def references_of(vcs: str, record: HasText) -> tuple[int, list[bytes]]:
    """The kind that a record refers to, and the keys."""
    return bzr_references(record) if vcs == "bzr 2a" else (0, git_references(record))


def git_references(record: HasText) -> list[bytes]:
    text, size, found = record.text, len(record.key), list[bytes]()
    if record.meta in (b"\1", b"\4"):
        return [bytes.fromhex(text.split(b"\n")[0].split(b" ")[1].decode())]
    at = 0
    while record.meta == b"\2" and at < len(text):
        mode, end = int(text[at : text.index(b" ", at)], 8), text.index(b"\0", at) + 1
        found += [text[end : end + size]] * (mode & 0o170000 != 0o160000)
        at = end + size
    return found


def bzr_references(record: HasText) -> tuple[int, list[bytes]]:
    lines = record.text.split(b"\n")
    if record.kind == 0:
        return 2, [record.key]
    if record.kind == 2:
        fields = dict(line.split(b": ", 1) for line in lines[1:-1])
        must(lines[0] == b"chkinventory:" and fields[b"revision_id"] == record.key, "an inventory is its revision's")
        return 3, [fields[b"id_to_entry"], fields[b"parent_id_basename_to_file_id"]]
    must(record.kind != 3 or len(record.text) <= 4194304, "a page has a limit")
    if record.kind == 3 and lines[0] == b"chknode:":
        return 3, [line.rpartition(b"\0")[2] for line in lines[5:-1]]
    texts, at = list[bytes](), 5
    while record.kind == 3 and lines[2] == b"1" and at < len(lines) - 1:
        key, _, count = lines[at].partition(b"\0")
        file_id, revision = lines[at + 1].split(b": ", 1)[1], lines[at + 4]
        must(file_id == lines[4] + key, "an entry is under its id")
        texts.append(file_id + b"\0" + revision)
        at += 1 + int(count)
    must(record.kind != 3 or lines[2] != b"1" or len(texts) == int(lines[3]), "a leaf counts its items")
    return 4, texts


def obey_record(record: Record) -> None:
    must(record.encoding in (0, 1, 3, 4), "a frame is stored, zstd or hunks")
    must(
        record.encoding != 0 or (not record.form and len(record.frame) == record.length), "a stored record is its text"
    )
    must(record.encoding < 3 or record.form > 0, "hunks have a base")
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
