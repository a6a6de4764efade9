"""Any history that is pushed can be read back, each revision from what its ancestors brought alone; in frames any text
with any base comes back, and changed ones give nothing but `Malformed`."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from smartserver.records import delta, limits
from smartserver.records.bases import Candidate, NewRecord, SegmentWriter
from smartserver.records.model import GraphNode, Kind, Parent
from smartserver.records.native import PARTS
from smartserver.records.segment import HUNKS, STORED, ZSTD, ZSTD_HUNKS, decode_segment, frames
from smartserver.records.varint import Malformed
from smartserver.vcs.git.format import BLOB
from smartserver.vcs.git.system import git_key

KIND = Kind("object", "git-sha1", True)
WORDS = [random.Random(n).randbytes(60) for n in range(6)]


@given(st.integers(0, 2**32), st.integers(1, 60), st.booleans(), st.sampled_from([0, 2000, 1 << 20]))
def test_every_segment_can_be_read_with_its_ancestors(seed: int, count: int, bulk: bool, cache: int) -> None:
    """Files change by a few pieces, so that texts come back, on branches that merge and on branches that never do."""
    chance = random.Random(seed)
    texts: dict[bytes, bytes] = {}
    trees: list[dict[bytes, bytes]] = []
    seen: list[set[bytes]] = []
    graph: list[GraphNode] = []
    pushed: list[list[NewRecord]] = []
    for n in range(count):
        parents = sorted(chance.sample(range(max(0, n - 4), n), min(n, chance.choice([0, 1, 1, 1, 1, 2]))))
        tree = dict(trees[parents[0]]) if parents else {}
        reach = set[bytes]().union(*[seen[p] for p in parents])
        items: dict[bytes, NewRecord] = {}
        for path in chance.sample([b"a/x.c", b"a/y.c", b"a/z.c", b"b", b"c.txt"], chance.randint(0, 3)):
            text = b"".join([chance.choice(WORDS) for _ in range(chance.choice([0, 1, 4, 4, 5]))])
            key = git_key(KIND.check, BLOB, text)
            texts[key] = text
            tree[path] = key
            if key not in reach:
                candidates = [Candidate(trees[p][path]) for p in parents if path in trees[p]]
                items.setdefault(key, NewRecord(0, key, BLOB, text, candidates, path))
        trees.append(tree)
        seen.append(reach | set(items))
        graph.append(GraphNode(b"%d" % n, tuple([Parent(b"%d" % p) for p in parents])))
        pushed.append(list(items.values()))

    writer = SegmentWriter((KIND,), bulk=bulk, texts=lambda kind, key: texts[key], cache=cache)
    for n, ((revision, parents_of), items_of) in enumerate(zip(graph, pushed, strict=True)):
        whole = writer.segment(revision, parents_of, items_of)
        segment = decode_segment(whole, 0, (KIND,))
        assert (segment.revision, segment.parents) == (revision, parents_of)
        for entry, frame, item in zip(segment.entries, frames(segment, whole), items_of, strict=True):
            base = segment.base_of(entry)
            assert not base or base in seen[n]
            got = delta.decompress(entry.encoding, frame, entry.length, texts[base] if base else b"")
            assert got == item.text


PYTHON = PARTS["Zstd"][0]

pieces = st.lists(st.sampled_from([b"alpha\n", b"bravo charlie\n", b"\0" * 300, bytes(range(256))]), max_size=20)
texts = st.one_of(st.binary(max_size=300), pieces.map(b"".join))


@given(texts, texts)
def test_any_text_with_any_base(text: bytes, base: bytes) -> None:
    encoding, frame = delta.compress(text, base)
    used = base if encoding == ZSTD else b""
    assert len(frame) <= len(text)
    assert delta.decompress(encoding, frame, len(text), used) == text
    if encoding == ZSTD:
        prefix = base if len(base) >= limits.MIN_BASE else b""
        other = PYTHON().compress(text, prefix, delta.LEVEL)
        for zstd in (delta.Zstd(), PYTHON()):
            assert zstd.decompress(frame, len(text), prefix) == text
            assert zstd.decompress(other, len(text), prefix) == text
    else:
        assert frame == text


@given(texts.filter(bool), texts, st.data())
def test_changed_frames(text: bytes, base: bytes, data: st.DataObject) -> None:
    encoding, frame = delta.compress(text, base)
    raw = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        if data.draw(st.booleans()) and at < len(raw):
            raw[at] = data.draw(st.integers(0, 255))
        else:
            raw[at : data.draw(st.integers(at, len(raw)))] = data.draw(st.binary(max_size=4))
    length = data.draw(st.sampled_from([len(text), len(text) + 1, 0, 1 << 20, 1 << 40]))
    try:
        got = delta.decompress(encoding, bytes(raw), length, base)
    except Malformed:
        return
    assert len(got) == length


@given(st.binary(max_size=60), st.integers(0, 400))
def test_garbage(raw: bytes, length: int) -> None:
    for encoding in (STORED, ZSTD, 2, HUNKS, ZSTD_HUNKS, 255):
        try:
            got = delta.decompress(encoding, raw, length)
        except Malformed:
            continue
        assert len(got) == length


@given(texts.filter(lambda text: len(text) > 20), texts)
def test_both_ways_refuse_the_same(text: bytes, base: bytes) -> None:
    frame = PYTHON().compress(text, b"", delta.LEVEL)
    raw = bytearray(frame)
    raw[-1] ^= 0xFF
    results: list[bytes | None] = []
    for zstd in (delta.Zstd(), PYTHON()):
        try:
            results.append(zstd.decompress(bytes(raw), len(text), b""))
        except ValueError:
            results.append(None)
    assert results[0] == results[1]
