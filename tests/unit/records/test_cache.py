"""records.cache, records.keys: the values that a cache keeps; a table gives each key its number."""

from __future__ import annotations

import random
import sys

import pytest

from smartserver.records import keys
from smartserver.records.cache import Cache
from smartserver.records.keys import ABSENT, KeyTable


def test_the_least_recently_used_is_dropped() -> None:
    cache = Cache[str, bytes](10, len)
    assert cache.put("a", b"12345") == cache.put("b", b"12345") == 0
    assert cache.get("a") == b"12345"
    assert cache.put("c", b"1") == 1
    assert [cache.get(key) for key in "abc"] == [b"12345", None, b"1"]
    assert (len(cache), cache.size) == (2, 6)


def test_a_value_put_again_counts_once() -> None:
    cache = Cache[str, bytes](10, len)
    cache.put("a", b"12345")
    cache.put("b", b"1234")
    assert cache.put("a", b"123456") == 0
    assert cache.size == 10
    assert cache.put("c", b"1") == 1
    assert cache.get("b") is None


def test_a_value_over_the_limit_drops_the_one_before_and_no_other() -> None:
    cache = Cache[str, bytes](10, len)
    cache.put("a", b"12345")
    cache.put("b", b"1")
    assert cache.put("a", b"12345678901") == 0
    assert (cache.get("a"), cache.get("b"), cache.size) == (None, b"1", 1)


def test_a_spare_value_goes_first_unless_it_is_used() -> None:
    cache = Cache[str, bytes](10, len)
    cache.put("a", b"12345")
    assert cache.put("b", b"12345", spare=True) == 0
    assert cache.put("c", b"1") == 1
    assert [cache.get(key) for key in "abc"] == [b"12345", None, b"1"]
    cache.put("d", b"1234", spare=True)
    assert cache.get("d") == b"1234"
    assert cache.put("e", b"1") == 1
    assert [cache.get(key) for key in "acde"] == [None, b"1", b"1234", b"1"]


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
