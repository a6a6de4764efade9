from __future__ import annotations

import random
import threading

import pytest
from counting import Counting, named

from smartserver.meters import counted, since
from smartserver.store import caches
from smartserver.store.caches import CachedText, TextCache


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
