"""server.common_cache: memory that workers share gives what one of them wrote, or nothing."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
from counting import Counting

from smartserver.server.common_cache import CommonCache
from smartserver.store.caches import CachedText, TextCache

KEYS = [b"key %d" % number for number in range(400)]


def value_of(key: bytes, chance: random.Random) -> bytes:
    """Some value that is right for a key."""
    return key * chance.randrange(1, 900)


def is_right(key: bytes, value: bytes) -> bool:
    return value == key * (len(value) // len(key))


def test_what_one_worker_writes_all_find() -> None:
    cache, counting = CommonCache(1 << 20, 2), Counting()
    cache.belong_to(1)
    cache.put(b"a", b"one")
    cache.belong_to(0)
    assert cache.get(b"a") == b"one"
    cache.put(b"a", b"two")
    assert cache.get(b"a") == b"two"
    assert cache.get(b"b") is None
    assert counting.named == {"common_cache_hits": 2, "common_cache_misses": 1, "common_cache_found_bytes": 6}


def test_the_newest_values_stay_and_none_is_wrong() -> None:
    cache, chance = CommonCache(1 << 20, 1), random.Random(1)
    for _ in range(5000):
        key = chance.choice(KEYS)
        cache.put(key, value_of(key, chance))
        found = cache.get(key)
        assert found is not None
        assert is_right(key, found)
    there = [(key, value) for key in KEYS if (value := cache.get(key)) is not None]
    assert len(there) > 100
    assert all(is_right(key, value) for key, value in there)


def test_a_value_that_would_push_out_too_many_is_not_kept() -> None:
    cache = CommonCache(1 << 20, 1)
    cache.put(b"large", bytes(300 << 10))
    assert cache.get(b"large") is None


@pytest.mark.parametrize("kills", [20, pytest.param(100, marks=pytest.mark.long)])
def test_a_writer_that_is_killed_leaves_no_wrong_byte(kills: int) -> None:
    cache, chance = CommonCache(1 << 20, 2), random.Random(kills)
    found = 0
    begun, begins = os.pipe()
    for number in range(kills):
        process = os.fork()
        if process == 0:
            try:
                cache.belong_to(number % 2)
                own = random.Random(number)
                os.write(begins, b"x")
                while True:
                    key = own.choice(KEYS)
                    cache.put(key, value_of(key, own))
            finally:
                os._exit(1)
        try:
            assert os.read(begun, 1) == b"x"
            time.sleep(chance.random() * 0.004)
            while_it_writes = [(key, cache.get(key)) for key in chance.sample(KEYS, 20)]
        finally:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        for key, value in [*while_it_writes, *((key, cache.get(key)) for key in KEYS)]:
            assert value is None or is_right(key, value)
            found += value is not None
    os.close(begun)
    os.close(begins)
    assert found > 100 * kills


def test_a_cache_of_texts_finds_what_another_process_has_proved() -> None:
    common, one, other = CommonCache(1 << 20, 1), TextCache(), TextCache()
    one.common = other.common = common
    one.put(b"a", CachedText(b"text", True, b"meta"))
    one.put(b"b", CachedText(b"text", False))
    assert other.get(b"a") == CachedText(b"text", True, b"meta")
    assert (len(other), other.get(b"b")) == (1, None)
