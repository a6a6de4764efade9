"""smartserver.store.table: names, and entries that are found without decoding the others."""

from __future__ import annotations

import pytest

from smartserver.errors import CorruptFile, InvalidName
from smartserver.store.table import SortedBytes, Table, check_key, check_name, encode_entries


@pytest.mark.parametrize("name", [b"a", b"refs/heads/main", b"\xff\xfe", b" ", b"x" * 1024])
def test_a_name_is_any_bytes(name: bytes) -> None:
    check_name(name)
    check_key(name)
    check_key(name + b"\0")
    check_key(name + b"\0" + name)


@pytest.mark.parametrize(
    ("name", "why"), [(b"", "0 bytes"), (b"x" * 1025, "1025 bytes"), (b"a\0b\0c", "NUL"), (b"\0", "0 bytes|NUL")]
)
def test_what_is_no_name(name: bytes, why: str) -> None:
    for check in (check_name, check_key):
        with pytest.raises(InvalidName, match=why):
            check(name)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 100])
def test_every_key_is_found_and_nothing_else(count: int) -> None:
    entries = [(f"key {2 * number:04}".encode(), str(number).encode() * number) for number in range(count)]
    table = SortedBytes(memoryview(encode_entries(entries)), "a file")
    assert list(table.items()) == entries
    assert [table.get(key) for key, _ in entries] == [value for _, value in entries]
    assert all(table.get(f"key {2 * number - 1:04}".encode()) is None for number in range(1, count + 2))
    assert list(table.starting(b"key 000")) == [key for key, _ in entries if key.startswith(b"key 000")]


@pytest.mark.parametrize("keys", [[b"b", b"a"], [b"a", b"a"], [b""]])
def test_keys_must_ascend(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="table key"):
        encode_entries([(key, b"") for key in keys])


@pytest.mark.parametrize("length", [0, 3, 8, 20])
def test_bytes_that_are_cut_short_are_refused(length: int) -> None:
    content = encode_entries([(b"a", b"1"), (b"bc", b"")])
    with pytest.raises(CorruptFile, match="whose sizes do not fit"):
        SortedBytes(memoryview(content)[:length], "a file")


@pytest.mark.parametrize("folded", [False, True])
def test_changes_lie_over_entries(folded: bool) -> None:
    table = Table("ids").changed([(b"b", None, b"2"), (b"d", None, b"4")])
    table = table.folded() if folded else table
    changed = table.changed([(b"a", None, b"1"), (b"b", b"2", None), (b"d", b"4", b"44"), (b"e", None, b"")])
    assert dict(changed) == {b"a": b"1", b"d": b"44", b"e": b""}
    assert list(changed.items()) == sorted(changed.items())
    assert (len(changed), changed.size, changed.starting(b"b")) == (3, 6, [])
    assert dict(table) == {b"b": b"2", b"d": b"4"}
    assert list(changed.folded().items()) == list(changed.items())
