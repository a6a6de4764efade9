from __future__ import annotations

import random
import threading
from zlib import crc32

import pytest
from counting import Counting, named

from smartserver.meters import counted, since
from smartserver.records.cache import Cache
from smartserver.store import caches
from smartserver.store.caches import RATE, SIZES, CachedText, Demand, Size, TextCache, best


@pytest.fixture(autouse=True)
def only_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "OF_TEXT", 0)


def test_small_texts_cost_what_python_keeps_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "OF_TEXT", 300)
    cache = TextCache(10_000)
    for number in range(1000):
        cache.put(b"%d" % number, CachedText(b"", True, b"m"))
    assert len(cache) == 10_000 // 301


def test_what_is_put_is_found_until_pushed_out() -> None:
    cache, counting = TextCache(100), Counting()
    cache.put(b"a", CachedText(b"x" * 40, True))
    cache.put(b"b", CachedText(b"y" * 40, False))
    assert cache.get(b"a") == CachedText(b"x" * 40, True)
    cache.put(b"c", CachedText(b"z" * 40, False))
    assert cache.get(b"b") is None  # The least recently used.
    assert cache.get(b"a") == CachedText(b"x" * 40, True)
    assert cache.get(b"c") == CachedText(b"z" * 40, False)
    assert (len(cache), cache.size) == (2, 80)
    assert counting.named == {"text_cache_hits": 3, "text_cache_misses": 1, "text_cache_found_bytes": 120}


def test_a_text_that_would_push_out_all_others_is_not_kept() -> None:
    cache = TextCache(100)
    cache.put(b"a", CachedText(b"x" * 40, True))
    cache.put(b"b", CachedText(b"x" * 51, True))
    assert cache.get(b"b") is None
    assert len(cache) == 1


def test_threads_keep_the_books() -> None:
    cache, before = TextCache(2000), counted()

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(2000):
            number = chance.randrange(60)
            found = cache.get(b"%d" % number)
            assert found is None or found.text == b"%d" % number * 20
            cache.put(b"%d" % number, CachedText(b"%d" % number * 20, True))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = named(since(counted(), before))
    assert counts["text_cache_hits"] + counts["text_cache_misses"] == 8000
    assert cache.size == sum(len(found.text) for n in range(60) if (found := cache.get(b"%d" % n)) is not None)
    assert cache.size <= 2000


def trace(count: int, keys: int) -> list[tuple[bytes, int]]:
    """Keys with their costs, some asked for often, most seldom."""
    chance = random.Random(count)
    costs = [chance.randrange(100, 40_000) for _ in range(keys)]
    asked = [min(int(chance.paretovariate(0.6)), keys) - 1 for _ in range(count)]
    return [(b"%d" % number, costs[number]) for number in asked]


def follow(asked: list[tuple[bytes, int]]) -> Demand:
    found = Demand()
    for key, cost in asked:
        found.use(key, cost)
    return found


def simulated(asked: list[tuple[bytes, int]], size: int) -> int:
    """The hits of a cache of that size."""
    cache = Cache[bytes, int](size, lambda cost: cost)
    hits = 0
    for key, cost in asked:
        if cache.get(key) is None:
            cache.put(key, cost)
        else:
            hits += 1
    return hits


def test_the_estimate_is_what_a_cache_of_that_size_finds() -> None:
    asked = trace(60_000, 6000)
    estimates = {each.size: each.hits for each in follow(asked).sizes()}
    for size in SIZES[2:16:3]:
        exact = simulated(asked, size)
        assert abs(estimates[size] - exact) < 0.05 * len(asked), (size, estimates[size], exact)
    assert estimates[SIZES[0]] < estimates[SIZES[12]]


def test_the_order_is_kept_when_times_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = trace(40_000, 1500)
    plain = follow(asked).sizes()
    monkeypatch.setattr(caches, "FOLLOWED", 256)
    assert follow(asked).sizes() == plain


def test_keys_used_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "FOLLOWED", 4)
    followed = Demand()
    a, b, c, d, e = [key for key in (b"%d" % number for number in range(1000)) if not crc32(key) % RATE][:5]
    for key in (a, b, c, d, e, a, e):
        followed.use(key, 1)
    assert sum(followed._hits) == RATE  # Of the last one alone.


def test_the_best_size_is_the_smallest_that_finds_nearly_as_much() -> None:
    sizes = [Size(1, 10, 500), Size(2, 20, 960), Size(4, 21, 1000), Size(8, 90, 5000)]
    assert best(sizes, 4) == 2
    assert best(sizes, 8) == 8
    assert best(sizes, 0) == 1
    assert best([Size(1, 0, 0), Size(2, 0, 0)], 2) == 1
