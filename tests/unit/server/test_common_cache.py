"""server.common_cache, common_counts, cache_sizes: memory that workers share, and how much of it their caches take."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from counting import Counting

from smartserver.meters import NOTHING, READS
from smartserver.server.cache_sizes import FADE, LEAST, START, AutoSize, free_memory
from smartserver.server.common_cache import CommonCache
from smartserver.server.common_counts import CommonCounts
from smartserver.server.request_meters import BUCKETS, CacheCounts, Histogram, ServerCounts
from smartserver.store.blocks import CACHED
from smartserver.store.caches import HEADERS, RATE, CachedText, Size, TextCache

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


def counts(reads: int, connections: int) -> ServerCounts:
    meters = list(NOTHING)
    meters[READS] = reads
    histogram = Histogram()
    histogram.add(BUCKETS[1])
    return ServerCounts(meters, {"verb": {"done": reads}}, {"verb": histogram}, connections)


def test_counts_are_added_up_and_go_on_where_a_worker_ended() -> None:
    common = CommonCounts(2)
    for worker, reads in ((0, 5), (1, 7)):
        common.belong_to(worker)
        common.write(counts(1, 1))
        common.write(counts(reads, 2))
    found = common.read()
    assert (found.meters[READS], found.outcomes, found.open) == (12, {"verb": {"done": 12}}, 4)
    assert found.seconds["verb"].counts[1] == 2
    common.belong_to(0)  # As a new process does.
    common.write(counts(3, 0))
    found = common.read()
    assert (found.meters[READS], found.open) == (15, 2)


def test_a_copy_that_is_half_written_is_none() -> None:
    common = CommonCounts(1)
    common.belong_to(0)
    for reads in (1, 2):
        common.write(counts(reads, 0))
    common._memory[30] ^= 1  # In the copy of the second.
    assert common.read().meters[READS] == 1


def test_what_a_worker_that_ended_was_asked_for_is_not_shown() -> None:
    common = CommonCounts(1)
    common.belong_to(0)
    asked = counts(1, 0)
    asked.caches = {"texts": CacheCounts(9, [Size(1, 2, 3)])}
    common.write(asked)
    assert common.read().caches["texts"].sizes == [Size(1, 2, 3)]
    common.belong_to(0)
    common.write(counts(1, 0))
    assert common.read().caches == {}


GIB = 1 << 30


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    before = CACHED.limit, HEADERS.limit
    yield
    HEADERS.demand = None
    CACHED.resize(before[0])
    HEADERS.resize(before[1])


def ask(texts: TextCache, size: int) -> None:
    """Ask for as many texts as take a size, twice."""
    text = CachedText(bytes(1 << 20), True)
    keys = [b"%d" % number for number in range(size >> 20)]
    for _ in range(2):
        for key in keys:
            if texts.get(key) is None:
                texts.put(key, text)


def test_what_is_asked_for_again_gets_room() -> None:
    texts = TextCache()
    auto = AutoSize(texts, 1, lambda: 16 * GIB)
    assert (texts.limit, CACHED.limit, HEADERS.limit) == (START // 2, START // 4, START // 4)
    ask(texts, 200 << 20)
    auto.decide()
    assert 180 << 20 < texts.limit < 300 << 20
    assert CACHED.limit == texts.limit // 2
    assert texts.demand is not None
    for _ in range(20 * FADE):
        auto.decide()
    assert texts.demand.sizes()[-1].hits < RATE


def test_short_memory_is_not_taken() -> None:
    texts = TextCache()
    free = [16 * GIB]
    auto = AutoSize(texts, 2, lambda: free[0])
    ask(texts, 100 << 20)
    auto.decide()
    assert texts.size > 60 << 20
    free[0] = 0
    for _ in range(10):
        auto.decide()
    assert (texts.limit, CACHED.limit, HEADERS.limit) == (LEAST // 2, LEAST // 4, LEAST // 4)
    assert texts.size <= LEAST // 2


def test_free_memory_is_the_machines_or_the_groups(tmp_path: Path) -> None:
    assert free_memory(tmp_path) is None
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    4096 kB\n")
    assert free_memory(tmp_path) == 4 << 20
    (tmp_path / "proc/self/cgroup").write_text("0::/a/b\n")
    group = tmp_path / "sys/fs/cgroup/a/b"
    group.mkdir(parents=True)
    for each, used in ((group, 100), (group.parent, 5000)):
        (each / "memory.current").write_text(f"{used}\n")
        (each / "memory.stat").write_text("anon 50\nactive_file 30\ninactive_file 20\n")
        (each / "memory.max").write_text("max\n")
    for most, expected in (("max\n", 4 << 20), ("1100\n", 1050), ("50\n", 0)):
        (group / "memory.max").write_text(most)
        assert free_memory(tmp_path) == expected
    (group / "memory.max").write_text("1100\n")
    (group.parent / "memory.max").write_text("5100\n")  # What is above it limits it, too.
    assert free_memory(tmp_path) == 150
