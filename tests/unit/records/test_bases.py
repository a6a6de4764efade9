"""Which base a writer chooses, and that every segment it makes can be read by who has the ancestors alone."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

import pytest
from needs import needs

from smartserver.errors import LimitExceeded
from smartserver.records import delta, limits
from smartserver.records.bases import FEW, Candidate, HeldRecord, NewRecord, SegmentWriter, skip_distance
from smartserver.records.check import verify_record
from smartserver.records.hunks import Hunk
from smartserver.records.model import BaseTag, Entry, Kind, Parent, Segment
from smartserver.records.native import PARTS
from smartserver.records.segment import HUNKS, STORED, ZSTD, ZSTD_HUNKS, decode_segment, frames

PYTHON, NATIVE = PARTS["SegmentWriter"]


@pytest.fixture(autouse=True, params=[pytest.param("native", marks=needs("native parts")), "python"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are written by either form of the part."""
    monkeypatch.setitem(globals(), "SegmentWriter", PYTHON if request.param == "python" else NATIVE)


IN_PYTHON = pytest.mark.parametrize("form", ["python"], indirect=True)
"""Marks a test that makes a limit of Python's smaller."""

TEXT = Kind("text", "sha1-key", True)
LOOSE = Kind("signature", "sha1-key", False)
CHECKED = Kind("inventory", "blake2b-128", True)
KINDS = (TEXT, LOOSE, CHECKED)


def key_of(text: bytes) -> bytes:
    return b"sha1:" + hashlib.sha1(text).hexdigest().encode()


def prose(seed: int, size: int = 4000) -> bytes:
    chance = random.Random(seed)
    return b"\n".join([b"%016x %016x" % (chance.getrandbits(64), chance.getrandbits(64)) for _ in range(size // 34)])


def edited(text: bytes, number: int) -> bytes:
    """`text` with one line more, the `number`-th edit."""
    return text + b"\nedit %d" % number


def record(text: bytes, *before: bytes, path: bytes = b"", kind: int = 0, key: bytes = b"") -> NewRecord:
    """A record with the texts `before` as candidates."""
    return NewRecord(kind, key or key_of(text), b"", text, [Candidate(key_of(old)) for old in before], path)


class Push:
    """A writer, and a reader that decodes each segment from what that revision's ancestors brought, and checks it."""

    def __init__(self, *, bulk: bool, outside: Sequence[bytes] = (), cache: int = limits.TEXT_CACHE) -> None:
        self.texts = {key_of(text): text for text in outside}
        self.outside = set(self.texts)
        self.asked: list[bytes] = []
        self.writer = SegmentWriter(KINDS, bulk=bulk, texts=self._text, cache=cache)
        self.reach: dict[bytes, set[tuple[int, bytes]]] = {}
        self.depth: dict[bytes, int] = {}
        self.size = 0

    def _text(self, kind: int, key: bytes) -> bytes:
        self.asked.append(key)
        return self.texts[key]

    def send(self, revision: bytes, parents: Sequence[bytes], *items: NewRecord) -> list[Entry]:
        whole = self.writer.segment(revision, [Parent(parent) for parent in parents], items)
        segment = decode_segment(whole, 0, KINDS)
        assert segment.revision == revision
        self.size = len(whole)
        reach = set[tuple[int, bytes]]().union(*[self.reach[parent] for parent in parents])
        for entry, frame, item in zip(segment.entries, frames(segment, whole), items, strict=True):
            base = self._base(segment, entry, reach)
            assert delta.decompress(entry.encoding, frame, entry.length, base) == item.text
            assert (entry.kind, entry.key, entry.meta) == (item.kind, item.key, item.meta)
            verify_record(KINDS[entry.kind], entry.key, entry.meta, item.text, entry.check)
            reach.add((entry.kind, entry.key))
            self.texts[entry.key] = item.text
            before = segment.base_of(entry)
            self.depth.setdefault(entry.key, self.depth.get(before, 0) + 1 if before else 0)
        self.reach[revision] = reach
        return list(segment.entries)

    def _base(self, segment: Segment, entry: Entry, reach: set[tuple[int, bytes]]) -> bytes:
        key = segment.base_of(entry)
        if not key:
            return b""
        assert key in self.outside or (entry.kind, key) in reach, "its base is no ancestor's"
        return self.texts[key]

    def send_line(self, count: int, size: int = 4000) -> list[Entry]:
        """The entries of so many revisions in a row, of a text that gets longer by a line."""
        sent = [
            self.send(revision, [parent.id for parent in parents], *items)
            for revision, parents, items in line(count, size)
        ]
        return [entry for (entry,) in sent]


def line(count: int, size: int = 4000) -> list[tuple[bytes, list[Parent], list[NewRecord]]]:
    """Revisions in a row, as a writer takes them."""
    text = prose(1, size)
    parents: list[list[Parent]] = [[], *[[Parent(b"r%d" % n)] for n in range(count - 1)]]
    return [(b"r%d" % n, parents[n], [record(edited(text, n), *[edited(text, n - 1)] * (n > 0))]) for n in range(count)]


def base_key(entry: Entry) -> bytes:
    """The base of an entry that is alone in its segment, or has no base."""
    assert entry.base in (BaseTag.NONE, BaseTag.FULL_KEY)
    return entry.base_key


# ---- candidates


@pytest.mark.parametrize("bulk", [False, True])
def test_the_smaller_frame_of_two_parents_wins(bulk: bool) -> None:
    old = prose(1)
    far, near = prose(2, 2000) + old, edited(old, 1)
    text = edited(near, 2) + prose(3, 400)
    for candidates in ((far, near), (near, far)):
        push = Push(bulk=bulk, outside=[far, near])
        (entry,) = push.send(b"r", [], record(text, *candidates))
        assert base_key(entry) == key_of(near)


@pytest.mark.parametrize("bulk", [False, True])
def test_a_useless_candidate_is_no_base(bulk: bool) -> None:
    push = Push(bulk=bulk, outside=[prose(2)])
    (entry,) = push.send(b"r", [], record(prose(1), prose(2)))
    assert (entry.encoding, entry.base) == (ZSTD, BaseTag.NONE)


def test_kinds_without_bases() -> None:
    text = prose(1)
    push = Push(bulk=True, outside=[text])
    entries = push.send(
        b"r", [], record(edited(text, 1), text, kind=1), record(edited(text, 2), text, kind=1, path=b"a/b")
    )
    assert [entry.base for entry in entries] == [BaseTag.NONE, BaseTag.NONE]


# ---- how a base is named


def test_names_of_bases() -> None:
    kind = Kind("object", "sha1-key", True)
    texts = {b"P": prose(1), b"Q": prose(2)}
    writer = SegmentWriter((kind,), bulk=False, texts=lambda kind, key: texts[key])
    new = [edited(prose(1), 1), edited(prose(2), 2), edited(edited(prose(1), 1), 3)]
    items = [
        NewRecord(0, b"a", b"\3", new[0], [Candidate(b"P")]),
        NewRecord(0, b"b", b"\3", new[1], [Candidate(b"Q")]),
        NewRecord(0, b"c", b"\3", new[2], [Candidate(b"a")]),
    ]
    parents = [Parent(b"Q", absent=True), Parent(b"P"), Parent(b"P")]
    segment = decode_segment(writer.segment(b"r", parents, items), 0, (kind,))
    assert [(entry.base, entry.base_key) for entry in segment.entries] == [
        (BaseTag.parent(1), b""),
        (BaseTag.FULL_KEY, b"Q"),  # An absent parent names nothing.
        (BaseTag.entry(0), b""),
    ]


# ---- chains


def test_chains_of_a_bulk_push_are_cut_short() -> None:
    push = Push(bulk=True)
    entries = push.send_line(1100)
    assert [base_key(entry) for entry in entries[1:]] == [entries[n - skip_distance(n)].key for n in range(1, 1100)]
    assert max(push.depth.values()) <= 2 * 31 + 1


@IN_PYTHON
def test_chains_stay_under_the_limit_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_CHAIN", 20 * 4000)
    push = Push(bulk=False)
    push.send_line(30)
    assert 5 < max(push.depth.values()) < 11
    assert sum(depth == 0 for depth in push.depth.values()) > 1


def test_chains_stay_under_the_limit_of_depth() -> None:
    push = Push(bulk=False)
    push.send_line(limits.MAX_DEPTH + 10, 400)
    assert max(push.depth.values()) == limits.MAX_DEPTH


@pytest.mark.parametrize(("size", "encoding"), [(1, HUNKS), (FEW, HUNKS), (FEW + 1, ZSTD)])
def test_a_text_that_differs_in_one_short_piece_is_a_hunk(size: int, encoding: int) -> None:
    push = Push(bulk=False)
    old = prose(1)
    push.send(b"r0", [], record(old))
    (entry,) = push.send(b"r1", [b"r0"], record(old[:2000] + b"#" * size + old[2007:], old))
    assert entry.encoding == encoding


@needs("native parts")
@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize("form", ["native"], indirect=True)
def test_both_forms_make_the_same_segments(*, bulk: bool) -> None:
    """Revisions with several texts, each edited in pieces of any length, moved, or copied from another branch. In bulk
    the forms make different frames, so they may choose different bases."""
    chance = random.Random(7)
    texts = [prose(seed, 1000 + 300 * seed) for seed in range(12)]
    known = {key_of(text): text for text in texts}
    forms = [form(KINDS, bulk=bulk, texts=lambda _, key: known[key], cache=20_000) for form in (NATIVE, PYTHON)]
    for number in range(200):
        items = []
        for at in chance.sample(range(12), chance.randrange(1, 5)):
            place, size = chance.randrange(len(texts[at])), chance.choice([0, 1, 60, 64, 65, 70, 600])
            new = texts[at][:place] + chance.randbytes(size) + texts[at][place + chance.randrange(9) :]
            kind = chance.choice([0, 0, 2])
            items.append(record(new, *chance.sample(texts, 1), texts[at], path=b"lib/%d.py" % at, kind=kind))
            known[key_of(new)] = new
            texts[at] = new
        parents = [Parent(b"r%d" % parent) for parent in chance.sample(range(number), min(number, 2))]
        native, python = [form.segment(b"r%d" % number, parents, items) for form in forms]
        assert bulk or native == python
        for segment in (native, python):
            decoded = decode_segment(segment, 0, KINDS)
            for item, entry, frame in zip(items, decoded.entries, frames(decoded, segment), strict=True):
                base = known.get(decoded.base_of(entry), b"")
                assert delta.decompress(entry.encoding, frame, entry.length, base) == item.text


@needs("native parts")
@pytest.mark.parametrize("form", ["native"], indirect=True)
def test_long_texts_on_their_bases_come_back() -> None:
    """The native form finds matches itself: at both ends and between, moved, repeated, and over blocks of 128 KiB."""
    chance = random.Random(9)
    known: dict[bytes, bytes] = {}
    writer = NATIVE(KINDS, bulk=True, texts=lambda _, key: known[key])
    base, saved = prose(1, 300_000), 0
    for number in range(150):
        text = bytearray(base)
        for _ in range(chance.choice([1, 2, 9, 90])):
            at, length = chance.randrange(len(text) + 1), chance.choice([1, 3, 7, 40, 500, 9000, 150_000])
            other = chance.randrange(len(text) + 1)
            piece = chance.choice([b"", bytes(length), chance.randbytes(length), text[other : other + length]])
            text[at : at + chance.choice([0, length])] = piece
        whole = bytes(text[: chance.choice([3, 1000, *[200_000, 600_000] * 3])])
        known |= {key_of(base): base, key_of(whole): whole}
        segment = writer.segment(b"r%d" % number, [], [record(whole, base, path=b"f")])
        decoded = decode_segment(segment, 0, KINDS)
        (entry,), (frame,) = decoded.entries, frames(decoded, segment)
        assert delta.decompress(entry.encoding, frame, entry.length, known.get(decoded.base_of(entry), b"")) == whole
        saved += entry.encoding == ZSTD and entry.base != BaseTag.NONE
        base = prose(number, chance.choice([8, 9, 5000, 300_000])) if chance.random() < 0.5 or len(whole) < 8 else whole
    assert saved > 50


# ---- copies


def test_a_further_copy_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = prose(1), edited(prose(1), 1)
    push = Push(bulk=True)
    for branch in (b"a", b"b"):
        first = push.send(branch + b"0", [], record(old))
        second = push.send(branch + b"1", [branch + b"0"], record(new, old))
        monkeypatch.setattr(delta, "compress", None)
    assert first[0].base == BaseTag.NONE
    assert base_key(second[0]) == key_of(old)


@pytest.mark.parametrize("kind", [0, 2])
def test_a_repeated_record_makes_the_same_segments(kind: int) -> None:
    old, new = prose(1), edited(prose(1), 1)
    texts = {key_of(text): text for text in (old, new)}
    asked: list[bytes] = []

    def text_of(kind: int, key: bytes) -> bytes:
        asked.append(key)
        return texts[key]

    records = [record(old, kind=kind, path=b"a/b"), record(new, old, kind=kind, path=b"a/b")]
    made = []
    for again in (
        records,
        [HeldRecord(each.kind, each.key, each.meta, each.candidates, each.path) for each in records],
    ):
        asked.clear()
        writer = SegmentWriter(KINDS, bulk=True, texts=text_of, cache=0)
        for revision, parents, item in ((b"a0", (), records[0]), (b"a1", (Parent(b"a0"),), records[1])):
            writer.segment(revision, parents, [item])
        before = len(asked)
        made.append([writer.segment(b"b0", (), [again[0]]), writer.segment(b"b1", (Parent(b"b0"),), [again[1]])])
    assert made[0] == made[1]
    # A check in the header is made of the text; else the text is not looked at again.
    assert (len(asked) == before) == (kind == 0)


# ---- siblings


@pytest.mark.parametrize("bulk", [False, True])
def test_a_new_file_rests_on_a_like_one_beside_it(bulk: bool) -> None:
    push = Push(bulk=bulk)
    like = prose(1)
    push.send(b"r0", [], record(prose(5), path=b"lib/z.py"), record(like, path=b"lib/a.py"))
    (entry,) = push.send(b"r1", [b"r0"], record(edited(like, 1), path=b"lib/b.py"))
    assert base_key(entry) == key_of(like)


def test_siblings_of_one_revision_name_each_other_by_place() -> None:
    push = Push(bulk=True)
    first, second = push.send(
        b"r0", [], record(prose(1), path=b"lib/a.py"), record(edited(prose(1), 1), path=b"lib/b.py")
    )
    assert (first.base, second.base) == (BaseTag.NONE, BaseTag.entry(0))


# ---- segments that are made while the caller goes on


@pytest.mark.parametrize("bulk", [False, True])
def test_what_is_put_is_what_is_made_at_once(bulk: bool) -> None:
    one, other = (SegmentWriter(KINDS, bulk=bulk, texts=lambda kind, key: b"") for _ in range(2))
    taken: list[bytes] = []
    for _ in range(2):  # It may be put again, once all is taken.
        for revision, parents, items in line(50):
            one.put(revision, parents, items)
            taken += [b"".join(parts) for parts in one.take(False)]
        taken += [b"".join(parts) for parts in one.take(True)]
    assert taken == [other.segment(*each) for _ in range(2) for each in line(50)]


def test_what_is_over_its_limit_is_told_in_its_turn() -> None:
    writer = SegmentWriter(KINDS, bulk=True, texts=lambda kind, key: b"")
    first, second, third = line(3)
    many = [Parent(b"%d" % n) for n in range(limits.MAX_PARENTS + 1)]
    for revision, parents, items in (first, (second[0], many, second[2]), third):
        writer.put(revision, parents, items)
    assert len(writer.take(True)) == 1
    with pytest.raises(LimitExceeded, match="parents of a revision: 65537"):
        writer.take(True)


def test_a_text_that_cannot_be_read_ends_it() -> None:
    def missing(kind: int, key: bytes) -> bytes:
        raise KeyError(key)

    writer = SegmentWriter(KINDS, bulk=True, texts=missing)

    def put_and_take() -> None:
        writer.put(b"r", [], [record(prose(2), prose(1))])
        writer.take(True)

    with pytest.raises(KeyError):
        put_and_take()


# ---- memory


class Held:
    """A writer of records whose texts are asked for where they are needed, and the texts."""

    def __init__(self, hunks: list[Hunk]) -> None:
        self.texts = {b"base": prose(1), b"new": edited(prose(1), 1) + prose(2, 200)}
        self.asked: list[tuple[bytes, bytes]] = []
        self._hunks = hunks
        self.writer = SegmentWriter(KINDS, bulk=True, texts=lambda kind, key: self.texts[key], hunks=self._find)

    def _find(self, kind: int, key: bytes, base: bytes) -> list[Hunk]:
        self.asked.append((key, base))
        return self._hunks

    def send(self, revision: bytes, *parents: bytes) -> tuple[Entry, bytes]:
        new = HeldRecord(0, b"new", b"", [Candidate(b"base")], length=len(self.texts[b"new"]))
        whole = self.writer.segment(revision, [Parent(parent) for parent in parents], [new])
        segment = decode_segment(whole, 0, KINDS)
        return segment.entries[0], bytes(next(frames(segment, whole)))


@pytest.mark.parametrize("size", [7, 1000])
def test_a_held_record_goes_as_hunks(size: int) -> None:
    length = len(prose(1))
    held = Held([(length, length, b"a line\n" * (size // 7))])
    held.texts[b"new"] = prose(1) + b"a line\n" * (size // 7)
    entry, frame = held.send(b"one")
    assert (entry.encoding, entry.base_key) == (HUNKS if size == 7 else ZSTD_HUNKS, b"base")
    assert delta.decompress(entry.encoding, frame, entry.length, held.texts[b"base"]) == held.texts[b"new"]
    # A copy in a revision that has the same base takes the same frame.
    assert held.send(b"two", b"one")[1] == frame
    assert len(set(held.asked)) == 1


@pytest.mark.parametrize("size", [3000, limits.MAX_HUNKS])
def test_hunks_that_say_too_much_are_left_for_the_text(size: int) -> None:
    held = Held([(0, 0, random.Random(1).randbytes(size))])
    entry, frame = held.send(b"one")
    assert entry.encoding == ZSTD
    assert delta.decompress(ZSTD, frame, entry.length, held.texts[b"base"]) == held.texts[b"new"]


def test_a_held_record_that_no_hunks_are_known_of() -> None:
    held = Held([])
    held.writer = SegmentWriter(KINDS, bulk=True, texts=lambda kind, key: held.texts[key])
    assert held.send(b"one")[0].encoding == ZSTD


@pytest.mark.parametrize("stored", [False, True])
def test_a_text_in_parts_is_sent_in_parts(stored: bool) -> None:
    """It has no base, and its neighbours are joined as ever."""
    noise = random.Random(4)
    parts = [noise.randbytes(1 << 20) if stored else prose(number, 1 << 20) for number in range(5)]
    text = b"".join(parts)
    large = record(b"", path=b"a/b", key=key_of(text))._replace(parts=delta.TextParts(parts))
    before, after = record(prose(1)), record(prose(2))
    writer = SegmentWriter(KINDS, bulk=False, texts=lambda *_: pytest.fail("a text is asked for"))
    sent = writer.parts(b"r", (), iter([before, large, after]))
    assert len(sent) > 2
    assert all(sent)
    whole = b"".join(sent)
    segment = decode_segment(whole, 0, KINDS)
    assert len(whole) == segment.length
    found = [
        delta.decompress(entry.encoding, frame, entry.length)
        for entry, frame in zip(segment.entries, frames(segment, whole), strict=True)
    ]
    assert found == [before.text, text, after.text]
    assert segment.entries[1].encoding == (STORED if stored else ZSTD)
