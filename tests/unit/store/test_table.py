"""store.table: names, and sorted bytes with changes over them, which are the table that a dict would be."""

from __future__ import annotations

import random

import pytest

from smartserver.errors import CorruptFile, InvalidName
from smartserver.store.table import FEW, SortedBytes, Table, check_key, check_name, encode_entries

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
