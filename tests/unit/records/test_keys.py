"""records.keys: a table gives each key its number, whatever the keys are and however many."""

from __future__ import annotations

import random
import sys

import pytest

from smartserver.records import keys
from smartserver.records.keys import ABSENT, KeyTable


def test_it_is_a_dictionary() -> None:
    rng = random.Random(1)
    table, expected = KeyTable(), dict[bytes, int]()
    for _ in range(20_000):
        key = rng.randbytes(rng.choice((0, 1, 2, 20)))
        assert (table.find(key), key in table) == (expected.get(key, ABSENT), key in expected)
        assert table.number(key) == expected.setdefault(key, len(expected))
    assert len(table) == len(expected)
    for key, number in expected.items():
        assert table.find(key) == number
        assert table.key(number) == key


@pytest.mark.parametrize("value", [0, 7, -1, (1 << 62) - 1])
def test_keys_of_one_hash_are_told_apart(value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "hash", lambda key: value, raising=False)
    table = KeyTable()
    names = [b"%d" % n for n in range(300)]
    assert [table.number(name) for name in names] == list(range(300))
    assert [table.find(name) for name in names] == list(range(300))
    assert table.find(b"300") == ABSENT


def test_its_memory() -> None:
    """Sixty-four bytes a key of twenty at most, just after the slots were doubled."""
    table = KeyTable()
    for number in range((1 << 15) + 2):
        table.number(number.to_bytes(20, "big"))
    taken = sum(map(sys.getsizeof, (table._slots, table.joined, table.ends)))
    assert taken < 70 * len(table)
