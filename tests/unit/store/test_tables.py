from __future__ import annotations

from collections.abc import Iterable

import pytest

from smartserver.errors import CorruptFile, InvalidName
from smartserver.store.tables import (
    INLINE,
    DraftTable,
    Lookup,
    OpenTable,
    Table,
    TableFile,
    TableMapping,
    check_name,
    encode_table,
    merged,
)

ENTRIES = {f"refs/heads/{number:03}".encode(): f"value {number * number}".encode() for number in range(0, 40, 2)}
ABSENT = [b"refs", b"refs/heads/", *(f"refs/heads/{number:03}".encode() for number in range(1, 43, 2)), b"zzz"]


def opened(content: bytes, count: int | None = None) -> OpenTable:
    stated = len(ENTRIES) if count is None else count
    return OpenTable(memoryview(content), TableFile(b"n" * 16, len(content), content[-16:], stated))


class Files:
    """An opener over contents kept here, counting how often it was asked."""

    def __init__(self) -> None:
        self.held: dict[bytes, bytes] = {}
        self.asked = 0

    def __call__(self, file: TableFile) -> OpenTable:
        self.asked += 1
        return OpenTable(memoryview(self.held[file.name]), file)

    def table(self, entries: Iterable[tuple[bytes, bytes]]) -> Table:
        content = encode_table(list(entries))
        self.held[b"n" * 16] = content
        return Table("ids", file=TableFile(b"n" * 16, len(content), content[-16:], len(list(entries))))


@pytest.mark.parametrize("name", [b"a", b"refs/heads/main", b"\xff\xfe", b" ", b"x" * 1024])
def test_a_name_is_any_bytes(name: bytes) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "why"), [(b"", "0 bytes"), (b"x" * 1025, "1025 bytes"), (b"a\0b", "NUL"), (b"\0", "NUL")]
)
def test_what_is_no_name(name: bytes, why: str) -> None:
    with pytest.raises(InvalidName, match=why):
        check_name(name)


def test_bytes_of_a_table() -> None:
    content = encode_table([(b"a", b"1"), (b"bc", b"")])
    assert content[:16] == b"hpss-tbl" + bytes.fromhex("0100 0000 02000000")
    assert content[16:28] == bytes.fromhex("00000000 08000000 10000000")
    assert content[28:36] == bytes.fromhex("a5e2c0b4 0100 61 31")
    assert content[36:44] == bytes.fromhex("502e3d08 0200 62 63")
    assert len(content) == 44 + 16


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 100])
def test_every_key_is_found_and_nothing_else(count: int) -> None:
    entries = [(f"key {2 * number:04}".encode(), str(number).encode() * number) for number in range(count)]
    table = opened(encode_table(entries), count)
    assert list(table.items()) == entries
    assert [table.get(key) for key, _ in entries] == [value for _, value in entries]
    assert all(table.get(f"key {2 * number - 1:04}".encode()) is None for number in range(1, count + 2))
    assert table.get(b"a") is None


def test_the_keys_that_begin_alike_are_found_without_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [(b"%03d\0%d" % (number, each), b"v") for number in range(500) for each in range(3)]
    table = opened(encode_table(entries), len(entries))
    read: list[int] = []
    entry = OpenTable._entry

    def noted(of: OpenTable, index: int) -> tuple[bytes, bytes]:
        read.append(index)
        return entry(of, index)

    monkeypatch.setattr(OpenTable, "_entry", noted)
    assert list(table.starting(b"077\0")) == [b"077\x00%d" % each for each in range(3)]
    assert len(read) < 20
    for first in (b"", b"0", b"499\0", b"5", b"077\x001"):
        assert list(table.starting(first)) == [key for key, _ in entries if key.startswith(first)]


@pytest.mark.parametrize("keys", [[b"b", b"a"], [b"a", b"a"], [b""]])
def test_keys_must_ascend(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="table key"):
        encode_table([(key, b"") for key in keys])


def test_a_flipped_byte_is_never_a_value_nor_an_absence() -> None:
    content = encode_table(sorted(ENTRIES.items()))
    file = TableFile(b"n" * 16, len(content), content[-16:], len(ENTRIES))
    for at in range(len(content)):
        for bit in (1, 0x80, 0xFF):
            damaged = bytearray(content)
            damaged[at] ^= bit
            try:
                table = OpenTable(memoryview(damaged), file)
            except CorruptFile:
                continue
            for key in (*ENTRIES, *ABSENT):
                try:
                    found = table.get(key)
                except CorruptFile:
                    continue
                assert found == ENTRIES.get(key), (at, bit, key)
            with pytest.raises(CorruptFile, match="does not match its check"):
                list(table.items())


def test_a_table_of_another_length_is_refused() -> None:
    content = encode_table(sorted(ENTRIES.items()))
    file = TableFile(b"n" * 16, len(content), content[-16:], len(ENTRIES))
    for length in (0, 1, 20, len(content) - 1):
        with pytest.raises(CorruptFile, match=f"{length} bytes, expected {len(content)}"):
            OpenTable(memoryview(content[:length]), file)
    with pytest.raises(CorruptFile, match="too short"):
        OpenTable(memoryview(b"short"), TableFile(b"n" * 16, 5, b"h" * 16, 0))


def test_another_version_and_another_table_are_refused() -> None:
    content = encode_table(sorted(ENTRIES.items()))
    newer = content[:8] + b"\2" + content[9:]
    with pytest.raises(CorruptFile, match="no table this release reads"):
        opened(newer)
    with pytest.raises(CorruptFile, match="20 entries, expected 19"):
        opened(content, len(ENTRIES) - 1)
    with pytest.raises(CorruptFile, match=r"tables/6e6e6e.*not the one the root has"):
        OpenTable(memoryview(content), TableFile(b"n" * 16, len(content), b"h" * 16, len(ENTRIES)))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {b"b": b"1", b"d": b"2"}),
        ({b"a": b"0", b"c": b"x", b"e": b"9"}, {b"a": b"0", b"b": b"1", b"c": b"x", b"d": b"2", b"e": b"9"}),
        ({b"b": None, b"d": b"3"}, {b"d": b"3"}),
        ({b"a": None, b"c": None, b"z": None}, {b"b": b"1", b"d": b"2"}),
        ({b"b": None, b"d": None}, {}),
    ],
)
def test_changes_over_entries(changes: dict[bytes, bytes | None], expected: dict[bytes, bytes]) -> None:
    assert list(merged(iter([(b"b", b"1"), (b"d", b"2")]), changes)) == list(expected.items())
    files = Files()
    lookup = Lookup(files.table([(b"b", b"1"), (b"d", b"2")]), changes, files)
    assert list(lookup.items()) == list(expected.items())
    assert lookup.count() == len(expected)
    inline = Lookup(Table("opaque", expected), {}, files)
    for first in (b"", b"a", b"b", b"d", b"z", b"aa"):
        begin_so = [key for key in expected if key.startswith(first)]
        assert lookup.starting(first) == inline.starting(first) == begin_so
    assert all(lookup.get(key) == expected.get(key) for key in (b"a", b"b", b"c", b"d", b"e", b"z"))


def test_a_mapping_is_lazy_and_decodes() -> None:
    files = Files()
    lookup = Lookup(files.table([(b"b", b"1"), (b"d", b"2")]), {b"c": b"30", b"e": None}, files)
    mapping = TableMapping(lookup, int)
    assert files.asked == 0
    assert mapping[b"d"] == 2
    assert mapping[b"c"] == 30
    assert b"e" not in mapping
    assert "b" not in mapping  # type: ignore[comparison-overlap]
    assert mapping.get(b"zz") is None
    with pytest.raises(KeyError):
        mapping[b"e"]
    assert list(mapping) == [b"b", b"c", b"d"]
    assert dict(mapping) == {b"b": 1, b"c": 30, b"d": 2} == dict(mapping.items())
    assert len(mapping) == len(mapping.items()) == 3
    assert (b"c", 30) in mapping.items()


def test_the_values_of_a_mapping_come_in_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files()
    below = files.table([(b"b", b"1"), (b"d", b"2"), (b"f", b"3")])
    mapping = TableMapping(Lookup(below, {b"c": b"30", b"d": None, b"f": b"4"}, files), int)
    values = [mapping[key] for key in mapping]
    assert len(mapping.values()) == 3
    monkeypatch.setattr(Lookup, "get", None)  # None is looked up.
    assert list(mapping.values()) == values == [1, 30, 4]


def test_changes_that_change_nothing_leave_no_trace() -> None:
    files = Files()
    draft = DraftTable(Lookup(files.table([(b"b", b"1")]), {b"c": b"2"}, files))
    draft.put(b"b", b"9")
    draft.put(b"b", b"1")
    draft.put(b"c", None)
    draft.put(b"never", None)
    assert draft.changes == {}
    assert draft.get(b"b") == b"1"


def test_a_fold_into_a_file_and_back_into_the_root() -> None:
    files = Files()
    draft = DraftTable(Lookup(Table("ids", {}), {}, files))
    for number in range(400):
        draft.put(f"refs/tags/{number:03}".encode(), b"v" * 40)
    assert draft.size() > INLINE
    assert draft.fold(b"1" * 16) is None
    written = draft.new_file()
    assert written is not None
    assert written[0] == "tables/" + "31" * 16
    assert draft.size() == 0
    assert draft.get(b"refs/tags/399") == b"v" * 40
    draft.put(b"refs/tags/000", b"w")
    assert draft.changes == {b"refs/tags/000": b"w"}

    files.held[b"1" * 16] = written[1]
    again = DraftTable(Lookup(draft.table(), draft.changes, files))
    for number in range(398):
        again.put(f"refs/tags/{number:03}".encode(), None)
    assert again.fold(b"2" * 16) == b"1" * 16
    assert again.new_file() is None
    assert again.table() == Table("ids", {b"refs/tags/398": b"v" * 40, b"refs/tags/399": b"v" * 40})
    assert again.fold(b"3" * 16, into_file=True) is None
    assert again.table().file is not None
