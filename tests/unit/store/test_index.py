"""store.index, store.index_build: what is found in an index, joining and rebuilding, and keys by number.

store.table: names, and sorted bytes with changes over them, which are the table that a dict would be."""

from __future__ import annotations

import random
import sys
from array import array
from collections.abc import Callable

import pytest
from pack_samples import KINDS, Revision, blob, history, note, packed
from traced_memory import traced

from smartserver.errors import CorruptFile, InvalidName, LimitExceeded
from smartserver.records.model import BaseTag, Entry, Record, Segment
from smartserver.records.segment import decode_segment
from smartserver.store import index_build
from smartserver.store.blocks import seal
from smartserver.store.index import Index, Row, record_digest
from smartserver.store.index_build import PACED, IndexBuilder, Numbered, Numbering, Resolve, merge, nowhere, rebuild
from smartserver.store.known_records import NO_BASE, Frame, RecentRecords, UploadIndex
from smartserver.store.table import FEW, SortedBytes, Table, check_key, check_name, encode_entries

TEXT = b"a text that is long enough to be the base of another one, line after line\n" * 4


def content_of(revisions: list[Revision], resolve: Resolve = nowhere) -> bytes:
    """The index of these revisions as a writer makes it, at offset 100."""
    builder = IndexBuilder(resolve)
    at = 100
    for revision in revisions:
        segment = decode_segment(revision.segment(), 0, KINDS)
        builder.add(at, segment)
        at += segment.length
    return b"".join(builder.finish(at + 16, b"h" * 16))


def build(revisions: list[Revision], resolve: Resolve = nowhere) -> Index:
    return Index.of(content_of(revisions, resolve), "packs/1.idx")


def test_a_match_across_two_digests_is_no_match() -> None:
    """A digest may lie in a bucket shifted: over the end of one row and the start of the next."""
    index = build([Revision(b"r", (), [(note(b"%d" % n, b""), None) for n in range(16)])])
    both = index.digest(4) + index.digest(5)
    for shift in range(1, 20):
        assert not index.find_digest(both[shift : shift + 20])
    assert index.find_digest(index.digest(5)) == range(5, 6)


def test_an_empty_index() -> None:
    index = Index.of(b"".join(IndexBuilder().finish(40, b"h" * 16)), "index")
    assert (index.records, index.segments, index.outside) == (0, 0, ())
    assert not index.find_digest(record_digest(0, b"k"))
    assert index.segment_of(b"r") is None
    assert index.segment_offsets[0] == 24


def test_counts_that_pass_the_end_are_refused_though_the_hash_is_right() -> None:
    content = bytearray(content_of(history(3)))
    good = bytes(content)
    for field in range(5):
        for change in (1, 0x1000):
            content[:] = good
            at = 12 + 4 * field
            content[at : at + 4] = (int.from_bytes(content[at : at + 4], "little") + change).to_bytes(4, "little")
            content[:] = b"".join(seal([bytes(content[:-32])]))
            try:
                index = Index.of(bytes(content), "index")
            except CorruptFile:
                continue
            assert change == 1  # One more may fit in what an alignment leaves free, and then says nothing new.
            assert index.records == 7


def test_a_machine_of_the_other_byte_order_reads_and_writes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    column = array("I", (1, 0x01020304))
    plain = column.tobytes()
    monkeypatch.setattr(sys, "byteorder", "big")
    assert index_build._aligned(column) == plain[3::-1] + plain[:3:-1]
    assert column.tobytes() == plain
    monkeypatch.undo()
    index = build(history(3))
    offsets, starts = index.segment_offsets[:], index.parent_starts[:]
    monkeypatch.setattr(sys, "byteorder", "big")
    other = Index(index.blocks)
    for swapped, column in ((other.segment_offsets[:], offsets), (other.parent_starts[:], starts)):
        swapped.byteswap()
        assert swapped == column


def test_what_the_caller_numbered_is_checked() -> None:
    """Numbers out of step would give an index that leads to other records."""
    base, changed = blob(TEXT), blob(TEXT + b"changed\n")
    segment = decode_segment(Revision(b"a", (), [(base, None), (changed, base)]).segment(), 0, KINDS)
    rows = [Row(), Row(8, 9, 7)]
    numbering = Numbering()
    builder = IndexBuilder(numbering=numbering)
    numbering.revisions.add(b"a")
    numbering.records.add(b"\0" + base.key)
    with pytest.raises(ValueError, match="1 records are numbered, expected 2"):
        builder.add_numbered(50, segment, rows, [-1, 0])
    numbering.records.add(b"\0" + changed.key)
    builder.add_numbered(50, segment, rows, [-1, 0])
    looked_up = IndexBuilder()
    looked_up.add(50, segment, iter([0, 7]))
    assert list(builder.finish(400, b"h" * 16)) == list(looked_up.finish(400, b"h" * 16))
    with pytest.raises(ValueError, match="has a segment in this pack already"):
        builder.add_numbered(50, segment, rows, [-1, 0])


def test_more_rows_than_a_column_can_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_build, "MAX_ROWS", 5)
    with pytest.raises(LimitExceeded, match="too many records of one pack: 7, at most 5 are allowed"):
        build(history(3))
    index = build(history(2))
    with pytest.raises(LimitExceeded, match="records of one pack: 10"):
        merge([index, index], 0, b"h" * 16)


def test_numbers_over_their_columns_stop_at_the_largest() -> None:
    base, changed = blob(TEXT), blob(TEXT + b"changed\n")
    index = build([Revision(b"r", (), [(changed, base)])], lambda _kind, _key: Row(300, 1 << 40, 1 << 40))
    assert index.row(0) == Row(255, 0xFFFFFFFF, 0xFFFFFFFF)


def test_merging_at_a_pace_stops_for_it_all_along() -> None:
    index = build(history(3 * PACED))
    calls: list[None] = []
    merged = b"".join(merge([index], 99, index.pack_hash, pace=lambda: calls.append(None)))
    assert merged == b"".join(merge([index], 99, index.pack_hash))
    assert len(calls) >= 3 + index.records // PACED


def test_a_revision_in_two_packs_is_refused() -> None:
    index = build(history(3))
    with pytest.raises(ValueError, match=r"revision revision-0000 has a segment in two packs"):
        merge([index, index], 0, b"h" * 16)


def test_rebuilding_needs_the_bases_that_lie_before() -> None:
    base = blob(TEXT)
    revision = Revision(b"r", (), [(blob(TEXT + b"changed\n"), base)])
    pack = packed([revision.segment()])
    with pytest.raises(CorruptFile, match=f"packs/1.pack .* its base {base.key.hex()} is in no pack before it"):
        rebuild(pack, nowhere)
    index = Index.of(rebuild(pack, lambda _kind, _key: Row(4, 7, 9)), "index")
    assert index.row(0) == Row(5, 8, 10)


def test_rebuilding_from_a_pack_that_holds_no_segments_of_its_kinds() -> None:
    pack = packed([Revision(b"r", (), [(note(b"k", b"x"), None)]).segment()], KINDS[:1])
    with pytest.raises(CorruptFile, match="kind 1, but the repository has 1"):
        rebuild(pack, nowhere)


MANY = 20_000


def test_names_have_their_numbers() -> None:
    """Each time one is added, the lowest is given."""
    chance = random.Random(5)
    names = Numbered()
    listed: list[bytes] = []
    first: dict[bytes, int] = {}
    for _ in range(400):
        name = chance.randbytes(chance.randrange(3))
        assert names.find(name) == first.get(name, -1)
        assert names.add(name) == first.setdefault(name, len(listed))
        listed.append(name)
    assert [names.key(number) for number in range(len(names))] == listed
    assert all(names.find(name) == number for name, number in first.items())
    assert names.joined == b"".join(listed)


def test_more_bytes_than_the_ends_can_say_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_build, "MAX_JOINED", 5)
    names = Numbered()
    assert [names.add(b"abc"), names.add(b"de")] == [0, 1]
    with pytest.raises(LimitExceeded) as refused:
        names.add(b"f")
    assert (refused.value.value, refused.value.limit) == (6, 5)
    assert (len(names), bytes(names.joined), names.find(b"f")) == (2, b"abcde", -1)


def keys() -> list[bytes]:
    chance = random.Random(7)
    return [chance.randbytes(20) for _ in range(MANY)]


def taken(fill: Callable[[], object]) -> float:
    """Bytes that what `fill` gives takes, by record."""
    with traced() as memory:
        _held = fill()
    return memory.kept / MANY


def test_what_is_known_of_a_push_takes_little() -> None:
    """A dict of keys and numbers alone would take some 230 bytes a record."""
    made = keys()
    row = Row(1, 2, 3)

    def push() -> tuple[UploadIndex, IndexBuilder]:
        numbering = Numbering()
        index = UploadIndex(numbering.records, lambda offset, size: b"", lambda kind, key: None)
        builder = IndexBuilder(numbering=numbering)
        for at in range(0, MANY, 10):
            for number in range(at, at + 10):
                place = Frame(1, number, 10, 20, NO_BASE, b"")
                index.add(0, bytes(made[number]), b"\x03", number, place, row)
            entries = tuple(Entry(0, 0, key, b"\x03", BaseTag.NONE, b"", 9, 9, b"") for key in made[at : at + 10])
            numbering.revisions.add(b"%d" % at)
            builder.add_numbered(9 * at, Segment(b"%d" % at, (), entries, 0, 90, (0,) * 10), [row] * 10, [-1] * 10)
        return index, builder

    assert taken(push) < 150


def test_a_recent_record_is_neither_large_nor_replaced() -> None:
    recent = RecentRecords(limit=100)
    for text in (b"x" * 30, b"never two texts"):
        recent.put(Record(0, b"7", b"", text))
    recent.put(Record(0, b"large", b"", b"x" * 51))
    assert (recent.get(0, b"7"), recent.get(0, b"large")) == (Record(0, b"7", b"", b"x" * 30), None)


ENTRIES = {f"refs/heads/{number:03}".encode(): f"value {number * number}".encode() for number in range(0, 40, 2)}
ABSENT = [b"refs", b"refs/heads/", *(f"refs/heads/{number:03}".encode() for number in range(1, 43, 2)), b"zzz"]


def opened(content: bytes) -> SortedBytes:
    return SortedBytes(memoryview(content), "file")


@pytest.mark.parametrize("name", [b"a", b"refs/heads/main", b"\xff\xfe", b" ", b"x" * 1024])
def test_a_name_is_any_bytes(name: bytes) -> None:
    check_name(name)
    for key in (name, name + b"\0", name + b"\0" + name):
        check_key(key)


@pytest.mark.parametrize(
    ("name", "why"), [(b"", "0 bytes"), (b"x" * 1025, "1025 bytes"), (b"a\0b\0c", "NUL"), (b"\0", "0 bytes|NUL")]
)
def test_what_is_no_name(name: bytes, why: str) -> None:
    for check in (check_name, check_key):
        with pytest.raises(InvalidName, match=why):
            check(name)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 20])
def test_every_key_is_found_and_nothing_else(count: int) -> None:
    entries = dict(list(ENTRIES.items())[:count])
    found = opened(encode_entries(entries.items()))
    assert {key: found.get(key) for key in entries} == entries
    assert [found.get(key) for key in ABSENT] == [None] * len(ABSENT)
    assert dict(found.items()) == entries
    assert list(found.starting(b"refs/heads/00")) == [key for key in entries if key.startswith(b"refs/heads/00")]


@pytest.mark.parametrize("keys", [[b"b", b"a"], [b"a", b"a"], [b""]])
def test_keys_must_ascend(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="table key"):
        encode_entries((key, b"") for key in keys)


def test_sizes_that_do_not_fit_are_damage() -> None:
    content = encode_entries(ENTRIES.items())
    for length in range(len(content)):
        with pytest.raises(CorruptFile, match="whose sizes do not fit"):
            opened(content[:length])


@pytest.mark.parametrize("seed", range(5))
def test_changes_over_sorted_bytes_are_those_of_a_dict(seed: int) -> None:
    """More of them than may lie over the bytes, so that some tables are folded."""
    chance = random.Random(seed)
    table, expected = Table("ids"), dict[bytes, bytes]()
    for _ in range(40):
        changes = []
        for key in {b"%d" % chance.randrange(2 * FEW) for _ in range(chance.choice((1, 5, FEW // 4)))}:
            new = chance.choice((None, b"v" * chance.randrange(9)))
            changes.append((key, expected.get(key), new))
        before, kept = table, dict(expected)
        table = table.changed(changes)
        expected.update({key: new for key, _, new in changes if new is not None})
        for key in [key for key, _, new in changes if new is None]:
            expected.pop(key, None)
        assert (dict(before), len(before)) == (kept, len(kept))
        assert list(table.items()) == sorted(expected.items())
        assert (len(table), table.size) == (len(expected), sum(map(len, [*expected, *expected.values()])))
        assert table.encode() == encode_entries(sorted(expected.items()))
        assert table.starting(b"1") == sorted(key for key in expected if key.startswith(b"1"))
