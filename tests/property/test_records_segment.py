"""Segments, graphs and streams: both ways, in any pieces, and with any bytes changed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from smartserver.errors import LimitExceeded
from smartserver.records import varint
from smartserver.records.announced import AnnouncedGraph
from smartserver.records.limits import MAX_RECORD
from smartserver.records.model import BaseTag, Entry, GraphNode, Kind, Parent
from smartserver.records.segment import (
    STORED,
    ZSTD,
    SegmentStream,
    decode_segment,
    encode_graph,
    encode_segment,
    frames,
)
from smartserver.records.varint import Malformed
from smartserver.store.headers import decode_header

KINDS = (
    Kind("object", "sha1-key", True),
    Kind("text", "blake2b-128", True),
    Kind("signature", "blake2b-128", False),
)

ids = st.binary(min_size=1, max_size=40)


@st.composite
def segments(draw: st.DrawFn) -> tuple[bytes, list[Parent], list[Entry], list[bytes]]:
    """Arguments for `encode_segment`."""
    revision = draw(ids)
    parents = draw(st.lists(st.builds(Parent, ids.filter(lambda name: name != revision), st.booleans()), max_size=4))
    names = draw(
        st.lists(st.tuples(st.integers(0, 2), st.one_of(ids, st.just(revision))), max_size=6, unique=True),
    )
    entries: list[Entry] = []
    contents: list[bytes] = []
    for n, (kind, key) in enumerate(names):
        frame = draw(st.binary(max_size=50))
        tags = [BaseTag.NONE]
        base_key = b""
        if KINDS[kind].base:
            base_key = draw(ids)
            tags += [BaseTag.FULL_KEY] if base_key != key else []
            tags += [BaseTag.entry(i) for i in range(n) if names[i][0] == kind]
            tags += [BaseTag.parent(i) for i, parent in enumerate(parents) if not parent.absent and parent.id != key]
        tag = draw(st.sampled_from(tags))
        encoding = draw(st.sampled_from([STORED, ZSTD])) if tag == BaseTag.NONE else ZSTD
        length = len(frame) if encoding == STORED else draw(st.integers(0, MAX_RECORD))
        check = draw(st.binary(min_size=16, max_size=16)) if kind else b""
        meta = draw(st.binary(max_size=10))
        base_key = base_key if tag == BaseTag.FULL_KEY else b""
        entries.append(Entry(kind, encoding, key, meta, tag, base_key, length, len(frame), check))
        contents.append(frame)
    return revision, parents, entries, contents


encoded = segments().map(lambda parts: encode_segment(*parts, KINDS))


@st.composite
def graphs(draw: st.DrawFn) -> list[GraphNode]:
    names = draw(st.lists(ids, max_size=8, unique=True))
    outside = draw(st.lists(ids.filter(lambda name: name not in names), max_size=3))
    listed = []
    for n, name in enumerate(names):
        near = [Parent(before) for before in names[:n]]
        absent = [Parent(other, True) for other in names if other != name]
        choice = st.sampled_from(
            [*near, *absent, *[Parent(name) for name in outside], *[Parent(name, True) for name in outside]]
        )
        parents = draw(st.lists(choice, max_size=4)) if near or absent or outside else []
        listed.append(GraphNode(name, tuple(parents)))
    return listed


@given(st.integers(0, 2**63 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_varints(n: int, before: bytes, after: bytes) -> None:
    raw = varint.encode(n)
    assert varint.decode(before + raw + after, len(before)) == (n, len(before) + len(raw))


@given(st.binary(max_size=12))
def test_every_varint_that_is_read_would_be_written_so(raw: bytes) -> None:
    try:
        n, end = varint.decode(raw, 0)
    except Malformed:
        return
    assert varint.encode(n) == raw[:end]


@given(segments(), st.binary(max_size=5), st.binary(max_size=5))
def test_segments(parts: tuple[bytes, list[Parent], list[Entry], list[bytes]], before: bytes, after: bytes) -> None:
    revision, parents, entries, contents = parts
    whole = encode_segment(revision, parents, entries, contents, KINDS)
    segment = decode_segment(before + whole + after, len(before), KINDS)
    frames_at = len(whole) - sum(map(len, contents))
    assert segment[:5] == (revision, tuple(parents), tuple(entries), frames_at, len(whole))
    assert [decode_header(whole[at:], revision, KINDS) for at in segment.headers] == entries
    assert list(frames(segment, before + whole + after, len(before))) == contents


@given(graphs())
def test_graphs(graph: list[GraphNode]) -> None:
    decoded = AnnouncedGraph(encode_graph(graph))
    assert list(decoded) == graph
    assert [decoded.find(each.revision) for each in graph] == list(range(len(graph)))
    assert [decoded.revision(place) for place in range(len(graph))] == [each.revision for each in graph]


@given(st.one_of(st.none(), graphs()), st.lists(encoded, max_size=4), st.data())
def test_any_split_of_a_stream_gives_the_same(
    graph: list[GraphNode] | None, whole: list[bytes], data: st.DataObject
) -> None:
    raw = (encode_graph(graph) if graph is not None else b"") + b"".join(whole)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    stream = SegmentStream(KINDS, graph_first=graph is not None)
    got: list[bytes] = []
    for begin, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        stream.feed(raw[begin:end])
        got += stream.segments()
    stream.finish()
    assert got == whole
    found = stream.graph()
    assert graph == (None if found is None else list(found))


@given(encoded, st.data())
def test_changed_segments_are_refused_or_read_as_written(whole: bytes, data: st.DataObject) -> None:
    raw = changed(whole, data)
    stream = SegmentStream(KINDS, graph_first=False, limit=1 << 20)
    try:
        stream.feed(raw)
        read = list(stream.decoded())
        stream.finish()
    except (Malformed, LimitExceeded):
        return
    for segment, one in read:
        # What is accepted has this one form.
        content = [bytes(frame) for frame in frames(segment, one)]
        assert encode_segment(segment.revision, segment.parents, segment.entries, content, KINDS) == one


@given(graphs().map(encode_graph), st.data())
def test_changed_graphs_are_refused_or_read_as_written(block: bytes, data: st.DataObject) -> None:
    raw = changed(block, data)
    try:
        graph = AnnouncedGraph(raw)
    except (Malformed, LimitExceeded):
        return
    assert encode_graph(graph) == raw


@given(st.binary(max_size=200), st.booleans())
def test_garbage(raw: bytes, graph_first: bool) -> None:
    stream = SegmentStream(KINDS, graph_first=graph_first, limit=1 << 20)
    try:
        stream.feed(raw)
        for segment, one in stream.decoded():
            assert len(one) == segment.length
        stream.finish()
    except (Malformed, LimitExceeded):
        pass


def changed(raw: bytes, data: st.DataObject) -> bytes:
    """`raw` with bytes replaced, put in or taken out; half the time its length is put right again."""
    out = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(out) - 1))
        match data.draw(st.sampled_from(["replace", "insert", "remove"])):
            case "replace":
                out[at] = data.draw(st.integers(0, 255))
            case "insert":
                out[at:at] = data.draw(st.binary(min_size=1, max_size=3))
            case _ if len(out) > 1:
                del out[at]
    if data.draw(st.booleans()):
        try:
            _, at = varint.decode(bytes(out), 0)
        except Malformed:
            return bytes(out)
        return varint.encode(len(out) - at) + out[at:]
    return bytes(out)
