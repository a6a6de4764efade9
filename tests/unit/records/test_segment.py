"""The bytes of segments and announced graphs, how a graph is searched, and the stream that carries them; LEB128 in the
shortest form."""

from __future__ import annotations

import random

import pytest
from traced_memory import traced

from smartserver.errors import LimitExceeded
from smartserver.records import limits, varint
from smartserver.records.announced import CHARGED, AnnouncedGraph
from smartserver.records.model import BaseTag, Entry, GraphNode, Kind, Parent, Segment
from smartserver.records.segment import (
    HUNKS,
    STORED,
    ZSTD,
    ZSTD_HUNKS,
    SegmentStream,
    decode_parents,
    decode_segment,
    encode_graph,
    encode_segment,
    frames,
)
from smartserver.records.varint import MAX_BYTES, Malformed, decode, encode

CASES = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (16383, "ff7f"),
    (16384, "808001"),
    (2**31 - 1, "ffffffff07"),
    (2**63 - 1, "ffffffffffffffff7f"),
]


@pytest.mark.parametrize(("n", "form"), CASES)
def test_both_ways(n: int, form: str) -> None:
    raw = bytes.fromhex(form)
    assert encode(n) == raw
    assert decode(raw, 0) == (n, len(raw))
    assert decode(memoryview(b"xx" + raw + b"yy"), 2) == (n, 2 + len(raw))


@pytest.mark.parametrize("n", [-1, 2**63])
def test_no_such_integer(n: int) -> None:
    with pytest.raises(ValueError, match="63 bits"):
        encode(n)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "cut off"),
        (b"\x80", "cut off"),
        (b"\xff\xff", "cut off"),
        (b"\x80\x00", "shortest"),
        (b"\xff\x80\x00", "shortest"),
        (b"\x80" * MAX_BYTES + b"\x01", "63 bits"),
        (b"\xff" * 20, "63 bits"),
    ],
)
def test_malformed(raw: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why) as caught:
        decode(b"..." + raw, 3)
    assert caught.value.offset == 3
    assert str(caught.value).startswith("malformed at byte 3: ")


KINDS = (Kind("object", "sha1-key", True), Kind("text", "blake2b-128", True), Kind("signature", "sha1-key", False))

R, P, Q, T, U = (letter * 20 for letter in (b"R", b"P", b"Q", b"T", b"U"))
CHECK = bytes(range(16))

PLAIN = Entry(0, STORED, R, b"\x01", BaseTag.NONE, b"", 3, 3, b"")
ENTRIES = (
    PLAIN,
    Entry(0, ZSTD, T, b"\x02", BaseTag.FULL_KEY, Q, 300, 2, b""),
    Entry(0, ZSTD, U, b"", BaseTag.entry(1), b"", 0, 1, b""),
    Entry(0, ZSTD, b"k", b"", BaseTag.parent(1), b"", 9, 1, b""),
    Entry(1, STORED, b"k", b"meta", BaseTag.NONE, b"", 0, 0, CHECK),
)
FRAMES = (b"abc", b"de", b"f", b"g", b"")
PARENTS = (Parent(P, True), Parent(Q))

WHOLE = (
    b"\xc1\x01"  # 193 bytes follow
    b"\x14" + R + b"\x02" + b"\x29" + P + b"\x28" + Q + b"\x05"
    b"\x00\x00" + b"\x00" + b"\x01\x01" + b"\x00" + b"\x03\x03"  # the revision's own record leaves its key out
    b"\x00\x01" + b"\x14" + T + b"\x01\x02" + b"\x01\x14" + Q + b"\xac\x02" + b"\x02"
    b"\x00\x01" + b"\x14" + U + b"\x00" + b"\x04" + b"\x00\x01"
    b"\x00\x01" + b"\x01k" + b"\x00" + b"\x05" + b"\x09\x01"
    b"\x01\x00" + b"\x01k" + b"\x04meta" + b"\x00" + b"\x00\x00" + CHECK + b"abcdefg"
)


def one(entry: Entry, frame: bytes = b"abc", parents: tuple[Parent, ...] = PARENTS) -> bytes:
    return encode_segment(R, parents, [entry], [frame], KINDS)


def patched(segment: bytes, old: bytes, new: bytes) -> bytes:
    """`segment` with `old`, which it has once, replaced, and its length put right."""
    _, at = varint.decode(segment, 0)
    body = segment[at:]
    assert body.count(old) == 1
    body = body.replace(old, new)
    return varint.encode(len(body)) + body


# ---- segments


def test_layout() -> None:
    assert encode_segment(R, PARENTS, ENTRIES, FRAMES, KINDS) == WHOLE
    segment = decode_segment(WHOLE, 0, KINDS)
    # Where the header of each entry begins, as WHOLE has them on a line each.
    headers = tuple(
        [WHOLE.index(begin) for begin in (b"\0\0\0\1\1", b"\0\1\x14T", b"\0\1\x14U", b"\0\1\1k", b"\1\0\1k")]
    )
    assert segment == Segment(R, PARENTS, ENTRIES, len(WHOLE) - 7, len(WHOLE), headers)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_read_anywhere_in_any_buffer(wrap: type) -> None:
    buf = wrap(b"before" + WHOLE + b"after")
    segment = decode_segment(buf, 6, KINDS)
    assert segment == decode_segment(WHOLE, 0, KINDS)
    assert [bytes(frame) for frame in frames(segment, buf, 6)] == list(FRAMES)


def test_header_alone_is_enough_to_decode() -> None:
    segment = decode_segment(WHOLE, 0, KINDS)
    assert decode_segment(WHOLE[: segment.frames_at], 0, KINDS) == segment
    with pytest.raises(Malformed, match=f"of a segment of {len(WHOLE)}"):
        list(frames(segment, WHOLE[:-1]))


def test_the_parents_alone() -> None:
    """They need no kinds, and nothing that comes after them."""
    assert decode_parents(b"before" + WHOLE, 6) == PARENTS
    assert decode_parents(encode_segment(b"r", (), (), (), KINDS), 0) == ()
    first = next(end for end in range(len(WHOLE)) if _has_parents(WHOLE[:end]))
    assert first < decode_segment(WHOLE, 0, KINDS).frames_at
    assert decode_parents(memoryview(WHOLE[:first]), 0) == PARENTS
    for end in range(first):
        with pytest.raises(Malformed):
            decode_parents(WHOLE[:end], 0)


def _has_parents(part: bytes) -> bool:
    try:
        return decode_parents(part, 0) == PARENTS
    except Malformed:
        return False


def test_every_cut_is_malformed() -> None:
    at = decode_segment(WHOLE, 0, KINDS).frames_at
    for end in range(at):
        with pytest.raises(Malformed):
            decode_segment(WHOLE[:end], 0, KINDS)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (PLAIN._replace(kind=0, encoding=2), "unknown encoding 2"),
        (PLAIN._replace(kind=0, encoding=5), "unknown encoding 5"),
        (PLAIN._replace(encoding=HUNKS), "hunks without a base"),
        (PLAIN._replace(encoding=ZSTD_HUNKS), "hunks without a base"),
        (PLAIN._replace(base=BaseTag.FULL_KEY, base_key=Q), "stored frame with a base"),
        (PLAIN._replace(length=4), "stored frame of 3 bytes"),
        (PLAIN._replace(encoding=ZSTD, base=BaseTag.entry(0)), "entry 0, which is not an earlier"),
        (PLAIN._replace(encoding=ZSTD, base=BaseTag.parent(0)), "parent 0, which does not exist"),
        (PLAIN._replace(encoding=ZSTD, base=BaseTag.parent(2)), "parent 2, which does not exist"),
        (PLAIN._replace(encoding=ZSTD, base=BaseTag.FULL_KEY, base_key=R), "itself as base"),
        (PLAIN._replace(encoding=ZSTD, key=Q, base=BaseTag.parent(1)), "itself as base"),
        (PLAIN._replace(kind=2, encoding=ZSTD, base=BaseTag.FULL_KEY, base_key=Q), "kind 2 with a base"),
        (PLAIN._replace(frame_length=2, length=2), "do not add up"),
        (PLAIN._replace(frame_length=4, length=4), "do not add up"),
        (PLAIN._replace(encoding=ZSTD, base=BaseTag.FULL_KEY, base_key=b""), "base key is empty"),
    ],
)
def test_refused_entries(entry: Entry, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        decode_segment(one(entry), 0, KINDS)


def test_refused_pairs_of_entries() -> None:
    other_kind = PLAIN._replace(kind=1, key=T, encoding=ZSTD, base=BaseTag.entry(0), check=CHECK)
    with pytest.raises(Malformed, match="earlier one of its kind"):
        decode_segment(encode_segment(R, (), [PLAIN, other_kind], [b"abc", b"abc"], KINDS), 0, KINDS)
    with pytest.raises(Malformed, match="comes twice"):
        decode_segment(encode_segment(R, (), [PLAIN, PLAIN], [b"abc", b"abc"], KINDS), 0, KINDS)
    same_key = PLAIN._replace(kind=2)
    assert decode_segment(encode_segment(R, (), [PLAIN, same_key], [b"abc", b"abc"], KINDS), 0, KINDS).entries == (
        PLAIN,
        same_key,
    )


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b"\x14" + R, b"\x00", "revision id is empty"),
        (b"\x28" + Q, b"\x00", "parent's id is empty"),
        (b"\x28" + Q, b"\x28" + R, "its own parent"),
        (b"\x00\x00\x00\x01\x01", b"\x00\x00\x14" + R + b"\x01\x01", "not written as empty"),
        (b"\x00\x00\x00\x01\x01", b"\x03\x00\x00\x01\x01", "kind 3, but the repository has 3"),
        (b"\xac\x02\x02", b"\xac\x82\x00\x02", "shortest"),
        (CHECK + b"abcdefg", CHECK[:8], "check is cut off"),
        (b"\x05\x00\x00\x00\x01\x01", b"\x7f\x00\x00\x00\x01\x01", "127 cannot lie in"),
    ],
)
def test_refused_bytes(old: bytes, new: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        decode_segment(patched(WHOLE, old, new), 0, KINDS)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (b"\x14" + R, varint.encode(1025) + 1025 * b"R", "revision id"),
        (b"\x28" + Q, varint.encode(1025 << 1) + 1025 * b"R", "parent"),
        (b"\x02\x29", varint.encode(limits.MAX_PARENTS + 1) + b"\x29", "parents"),
        (b"\x05\x00\x00\x00\x01\x01", varint.encode(limits.MAX_ENTRIES + 1) + b"\x00\x00\x00\x01\x01", "records"),
        (b"\x14" + T, varint.encode(1025) + 1025 * b"T", "record key"),
        (b"\x01\x14" + Q, b"\x01" + varint.encode(1025) + 1025 * b"Q", "base key"),
        (b"\x04meta", varint.encode(limits.MAX_META + 1) + b"meta", "meta"),
        (b"\xac\x02\x02", varint.encode(limits.MAX_RECORD + 1) + b"\x02", "record"),
    ],
)
def test_limits(old: bytes, new: bytes, what: str) -> None:
    with pytest.raises(LimitExceeded, match=what):
        decode_segment(patched(WHOLE, old, new), 0, KINDS)


def test_limit_of_a_segment_and_its_text() -> None:
    with pytest.raises(LimitExceeded, match="segment"):
        decode_segment(varint.encode(limits.MAX_SEGMENT + 1) + WHOLE[2:], 0, KINDS)
    big = [
        PLAIN._replace(key=b"%d" % n, encoding=ZSTD, length=limits.MAX_RECORD, frame_length=0)
        for n in range(limits.MAX_SEGMENT_TEXT // limits.MAX_RECORD + 1)
    ]
    with pytest.raises(LimitExceeded, match="text in a segment"):
        decode_segment(encode_segment(R, (), big, [b""] * len(big), KINDS), 0, KINDS)


def test_writer_refuses_what_no_reader_takes() -> None:
    with pytest.raises(LimitExceeded, match="parents"):
        encode_segment(R, [Parent(P)] * (limits.MAX_PARENTS + 1), (), (), KINDS)
    with pytest.raises(LimitExceeded, match="bytes of a record"):
        one(PLAIN._replace(length=limits.MAX_RECORD + 1))
    with pytest.raises(ValueError, match="check of 16 bytes"):
        one(PLAIN._replace(check=CHECK))


# ---- graphs

GRAPH = [
    GraphNode(P, ()),
    GraphNode(Q, (Parent(P), Parent(b"out"))),
    GraphNode(R, (Parent(Q), Parent(P), Parent(b"ghost", True))),
    GraphNode(T, (Parent(R, True),)),
]
GRAPH_BYTES = (
    b"\x7e\x04"
    b"\x14" + P + b"\x00"
    b"\x14" + Q + b"\x02\x01\x00\x06out"
    b"\x14" + R + b"\x03\x01\x02\x00\x0bghost"
    b"\x14" + T + b"\x01\x00\x29" + R
)


def test_graph_layout() -> None:
    assert encode_graph(GRAPH) == GRAPH_BYTES
    assert list(AnnouncedGraph(GRAPH_BYTES)) == GRAPH
    assert encode_graph([]) == b"\x01\x00"
    assert list(AnnouncedGraph(b"\x01\x00")) == []


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        ([GraphNode(P, ()), GraphNode(P, ())], "listed twice"),
        ([GraphNode(P, (Parent(Q),)), GraphNode(Q, ())], "after its child"),
        ([GraphNode(P, (Parent(P),))], "its own parent"),
    ],
)
def test_graph_is_in_order(graph: list[GraphNode], why: str) -> None:
    with pytest.raises(Malformed, match=why):
        AnnouncedGraph(encode_graph(graph))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "cut off"),
        (b"\x01", "cut off"),
        (b"\x01\x00\x00", "empty"),
        (b"\x01\x01a\x01\x01", "before the first"),
        (b"\x01\x01a\x01\x02", "before the first"),
        (b"\x01\x01a\x00\x00", "after the last"),
        (b"\x02\x01a\x00\x01b\x01\x00\x02a", "not named by its distance"),
        (b"\x01\x01a\x05\x00\x02b", "cannot lie in"),
    ],
)
def test_malformed_graph(body: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        AnnouncedGraph(varint.encode(len(body)) + body)


def test_graph_length() -> None:
    for block in (GRAPH_BYTES[:-1], GRAPH_BYTES + b"x"):
        with pytest.raises(Malformed, match="a graph of"):
            AnnouncedGraph(block)
    with pytest.raises(LimitExceeded, match="graph"):
        AnnouncedGraph(varint.encode(limits.MAX_GRAPH + 1))


# ---- streams


def read(stream: SegmentStream, chunks: list[bytes]) -> list[bytes]:
    whole: list[bytes] = []
    for chunk in chunks:
        stream.feed(chunk)
        whole += stream.segments()
    stream.finish()
    return whole


SMALL = encode_segment(b"r", (), (), (), KINDS)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, 10_000])
@pytest.mark.parametrize("graph_first", [False, True])
def test_stream_in_pieces(size: int, graph_first: bool) -> None:
    data = (GRAPH_BYTES if graph_first else b"") + SMALL + WHOLE + SMALL + WHOLE
    stream = SegmentStream(graph_first=graph_first)
    assert read(stream, [data[at : at + size] for at in range(0, len(data), size)]) == [SMALL, WHOLE, SMALL, WHOLE]
    assert list(stream.graph() or ()) == (GRAPH if graph_first else [])


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_stream_keeps_nothing_of_a_chunk(wrap: type) -> None:
    chunk = bytearray(SMALL + WHOLE[:50])
    stream = SegmentStream(graph_first=False)
    stream.feed(wrap(chunk))
    chunk[:] = bytes(len(chunk))
    stream.feed(wrap(WHOLE[50:]))
    assert list(stream.segments()) == [SMALL, WHOLE]
    assert all(type(segment) is bytes for segment in [SMALL, WHOLE])


@pytest.mark.parametrize(
    ("graph_first", "data", "why"),
    [
        (False, WHOLE + WHOLE[:-1], f"at byte {len(WHOLE)}: the stream ends {len(WHOLE) - 1} bytes into"),
        (False, b"\x80", "ends 1 bytes into"),
        (True, b"", "before its graph"),
        (True, GRAPH_BYTES[:-1], "into a segment or graph"),
    ],
)
def test_stream_that_ends_early(graph_first: bool, data: bytes, why: str) -> None:
    stream = SegmentStream(graph_first=graph_first)
    stream.feed(data)
    with pytest.raises(Malformed, match=why):
        stream.finish()


@pytest.mark.parametrize("size", [1, 100])
def test_stream_limits(size: int) -> None:
    data = WHOLE + varint.encode(len(WHOLE) + 1) + b"x"
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    with pytest.raises(LimitExceeded, match=f"{len(WHOLE) + 1}, at most {len(WHOLE)} are allowed"):
        read(SegmentStream(graph_first=False, limit=len(WHOLE)), chunks)
    with pytest.raises(LimitExceeded, match="graph"):
        SegmentStream(graph_first=True).feed(varint.encode(limits.MAX_GRAPH + 1))


@pytest.mark.parametrize("head", [b"\x80\x00", b"\xff" * 10])
@pytest.mark.parametrize("size", [1, 100])
def test_stream_with_a_bad_length(head: bytes, size: int) -> None:
    data = WHOLE + head + WHOLE
    with pytest.raises(Malformed, match=f"at byte {len(WHOLE)}: an integer"):
        read(SegmentStream(graph_first=False), [data[at : at + size] for at in range(0, len(data), size)])


def test_a_large_segment_is_held_once() -> None:
    size = 16 << 20
    text = bytes(size)
    whole = encode_segment(R, (), [PLAIN._replace(length=size, frame_length=size)], [text], KINDS)
    stream = SegmentStream(graph_first=False)
    with traced() as memory:
        for at in range(0, len(whole), 1 << 18):
            stream.feed(whole[at : at + (1 << 18)])
    assert list(stream.segments()) == [whole]
    assert memory.peak < size * 1.5


def line(count: int) -> list[GraphNode]:
    ids = [b"%020d" % number for number in range(count)]
    return [GraphNode(each, (Parent(ids[at - 1]),) if at else ()) for at, each in enumerate(ids)]


def block(count: int, body: bytes) -> bytes:
    body = varint.encode(count) + body
    return varint.encode(len(body)) + body


def test_every_revision_is_found_by_place_and_by_id() -> None:
    chance = random.Random(5)
    ids = [chance.randbytes(chance.randrange(1, 200)) for _ in range(3000)]
    ids = list(dict.fromkeys(ids))
    revisions: list[GraphNode] = []
    for at, each in enumerate(ids):
        parents = [Parent(ids[chance.randrange(at)]) for _ in range(min(at, 2))]
        revisions.append(GraphNode(each, (*parents, Parent(b"outside%d" % (at % 7)), Parent(b"ghost", True))))
    graph = AnnouncedGraph(encode_graph(revisions))
    assert len(graph) == len(ids)
    assert list(graph) == revisions
    assert [graph[-1], *graph[1:3]] == [revisions[-1], *revisions[1:3]]
    assert [graph.find(each) for each in ids] == list(range(len(ids)))
    assert [graph.revision(place) for place in range(len(ids))] == ids
    assert [graph.find(each) for each in (b"outside1", b"ghost", b"nowhere")] == [None] * 3
    for place in (len(ids), -len(ids) - 1):
        with pytest.raises(IndexError):
            graph[place]


def test_the_count_is_refused_before_anything_is_read() -> None:
    with pytest.raises(
        LimitExceeded, match="too many revisions of an announced graph: 3000001, at most 3000000 are allowed"
    ):
        AnnouncedGraph(block(limits.MAX_ANNOUNCED + 1, b""))


def test_parents_are_counted_over_the_whole_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ANNOUNCED_PARENTS", 10)
    assert len(AnnouncedGraph(encode_graph(line(11)))) == 11
    with pytest.raises(LimitExceeded, match="too many parents of an announced graph: 11, at most 10 are allowed"):
        AnnouncedGraph(block(12, encode_graph(line(12))[4:]))
    with pytest.raises(LimitExceeded, match="parents of an announced graph"):
        encode_graph(line(12))


def test_reading_is_charged_as_it_goes_on() -> None:
    steps: list[int] = []
    AnnouncedGraph(encode_graph(line(20_000)), steps.append)
    assert max(steps) <= CHARGED + 2
    assert 40_000 - CHARGED <= sum(steps) <= 40_000


@pytest.mark.long
@pytest.mark.parametrize("git", [False, True])
def test_memory_is_a_few_times_the_bytes(git: bool) -> None:
    """Memory is 1.5 times the bytes of git's ids besides the graph itself, and 8 times of the shortest ids: those are
    bounded by their number, not by their bytes."""
    count = 30_000
    if git:
        raw = encode_graph(line(count))
    else:
        body = b"".join(b"\3" + at.to_bytes(3, "big") + (b"\1\1" if at else b"\0") for at in range(count))
        raw = block(count, body)
    with traced() as memory:
        graph = AnnouncedGraph(raw)
    assert len(graph) == count
    assert memory.peak < 48 * count
    assert memory.peak < (3 if git else 8) * len(raw)
