"""server.cache_sizes: caches grow where a larger one would find more, and give way where memory is short."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from smartserver.server.cache_sizes import FADE, LEAST, START, AutoSize, divide, free_memory
from smartserver.store.blocks import CACHED
from smartserver.store.caches import HEADERS, RATE, CachedText, TextCache

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


def test_a_size_is_divided() -> None:
    texts = TextCache()
    divide(texts, 8 << 20)
    assert (texts.limit, CACHED.limit, HEADERS.limit) == (4 << 20, 2 << 20, 2 << 20)


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
