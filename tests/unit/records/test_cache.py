from __future__ import annotations

from smartserver.records.cache import Cache


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
