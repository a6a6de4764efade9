"""Caches of the process: each is bounded in bytes, safe for threads, and counted. Push and pull need no cached
fulltexts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar
from zlib import crc32

import msgspec

from smartserver.meters import HEADER_CACHE, TEXT_CACHE, CacheMeters, here
from smartserver.records.cache import Cache

RATE: Final = 16
"""The sampling rate: one key in 16 is tracked."""
SIZES: Final = tuple(int((1 << 20) * 2 ** (step / 2)) for step in range(27))
"""The sizes of simulated caches in bytes: from 1 MiB to 8 GiB."""
FOLLOWED: Final = 1 << 14
"""The most keys that are tracked; the least recently used is dropped first."""
NEAR_BEST: Final = 0.95
"""A cache is large enough if it would have this share of the hits, in bytes, of the largest allowed cache."""


class Size(NamedTuple):
    """The hits that a cache of `size` bytes would have had."""

    size: int
    hits: int
    found: int
    """The size in bytes of the values of all hits together."""


class Demand:
    """Tracks the use of one cache, to compute the hits of a cache of another size.

    One key in 16 is tracked, chosen by its hash, and represents all (SHARDS: Waldspurger, Park, Garthwaite and Ahmad,
    *Efficient MRC Construction with SHARDS*, FAST 2015). The few hottest keys may not be among them. So the difference
    between all uses and 16 times the tracked uses is added to the smallest cache (SHARDS-adj in that paper). A cache
    that drops the least recently used value still has a value if the values used since then fit in it. Their bytes are
    the sum of a range of a Fenwick tree, in the order of the last use.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: dict[bytes, int] = {}
        """The number of the last use of each tracked key, the oldest first."""
        self._costs: dict[bytes, int] = {}
        self._tree = [0] * (2 * FOLLOWED + 1)
        """The costs of the tracked keys by the number of their last use, as a Fenwick tree."""
        self._now = 0
        self._hits = [0.0] * len(SIZES)
        self._found = [0.0] * len(SIZES)
        self._uses = self._bytes = 0.0
        """The number of all uses minus `RATE` times the number of tracked uses; and the same for bytes."""

    def use(self, key: bytes, cost: int) -> None:
        """Count a lookup of a value, whether it was in the cache or not."""
        self._uses += 1  # Two threads may lose one.
        self._bytes += cost
        if not crc32(key) % RATE:
            self._follow(key, cost)

    def _follow(self, key: bytes, cost: int) -> None:
        with self._lock:
            self._uses -= RATE
            self._bytes -= RATE * cost
            before = self._times.pop(key, None)
            if before is not None:
                beyond = RATE * (self._sum(self._now) - self._sum(before)) + cost
                number = next((number for number, size in enumerate(SIZES) if size >= beyond), None)
                if number is not None:
                    self._hits[number] += RATE
                    self._found[number] += RATE * cost
                self._add(before, -self._costs[key])
            elif len(self._times) >= FOLLOWED:
                oldest = next(iter(self._times))
                self._add(self._times.pop(oldest), -self._costs.pop(oldest))
            if self._now >= 2 * FOLLOWED:
                self._renumber()
            self._now += 1
            self._times[key], self._costs[key] = self._now, cost
            self._add(self._now, cost)

    def sizes(self) -> list[Size]:
        """Return the hits of caches of all `SIZES`."""
        found: list[Size] = []
        with self._lock:
            hits, size_found = self._uses, self._bytes
            for size, more, more_found in zip(SIZES, self._hits, self._found, strict=True):
                hits += more
                size_found += more_found
                found.append(Size(size, max(round(hits), 0), max(round(size_found), 0)))
        return found

    def fade(self) -> None:
        """Halve all counts, so that older uses count less."""
        with self._lock:
            self._hits = [hits / 2 for hits in self._hits]
            self._found = [found / 2 for found in self._found]
            self._uses /= 2
            self._bytes /= 2

    def _renumber(self) -> None:
        """Number the last uses from 1 again, in the same order."""
        self._tree = [0] * len(self._tree)
        self._now = 0
        for key in self._times:
            self._now += 1
            self._times[key] = self._now
            self._add(self._now, self._costs[key])

    def _add(self, time: int, cost: int) -> None:
        while time < len(self._tree):
            self._tree[time] += cost
            time += time & -time

    def _sum(self, time: int) -> int:
        total = 0
        while time:
            total += self._tree[time]
            time &= time - 1
        return total


def best(sizes: Sequence[Size], most: int) -> int:
    """Return the smallest size that is large enough (`NEAR_BEST`) if at most `most` bytes are allowed. Without hits
    this is the smallest size of all."""
    allowed = [size for size in sizes if size.size <= most] or sizes[:1]
    return next(size.size for size in allowed if size.found >= NEAR_BEST * allowed[-1].found)


TEXT_BYTES = 64 << 20
"""The default limit of cached fulltexts in bytes. Reading the 1,580 records of a tip then decodes each base once;
reading a whole history decodes each 1.7 times."""

OF_TEXT = 300
"""Bytes of memory that an entry takes besides its text and meta: key, tuple, and place in the cache."""

OF_ROW = 33
"""Bytes of memory that a `bytes` object takes besides its content."""

HEADER_BYTES = 32 << 20
"""The most bytes of cached rows of logs, enough for some 150,000 revisions."""

V = TypeVar("V")


class Common(Protocol):
    """A cache outside this process. It returns exactly the stored bytes, or None."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""

    def put(self, key: bytes, value: bytes) -> None:
        """Store a value."""


class Form(NamedTuple, Generic[V]):
    """A conversion of values to bytes, for a cache outside this process."""

    name: bytes
    """The prefix of the keys in that cache."""
    encode: Callable[[V], bytes | None]
    """Encodes a value; returns None for a value that must stay in this process."""
    decode: Callable[[bytes], V]


class SharedCache(Cache[bytes, V]):
    """A `Cache` that is safe for threads and counts its use; it may serve several repositories."""

    def __init__(self, limit: int, cost: Callable[[V], int], meters: CacheMeters, form: Form[V] | None = None) -> None:
        """`limit`: the most that all values may cost together; with 0 nothing is stored. `meters`: the meters that
        count its use. `form`: the conversion for `common`; None means that values stay in this process."""
        super().__init__(limit, cost)
        self._meters = meters
        self._lock = threading.Lock()
        self._form = form
        self.common: Common | None = None
        """The cache outside this process, in which `get` looks for values that are missing in this one."""
        self.demand: Demand | None = None
        """The counter of lookups, if the size of the cache is chosen by its use."""

    def get(self, key: bytes) -> V | None:
        """Return the value stored under `key`, or None."""
        # It is called a dozen times for each record, so without the lock: both calls are atomic under Python's own
        # lock, as bytes are hashed and compared in C.
        values, tally = self._values, here.tally
        try:
            found = values[key]
            values.move_to_end(key)
        except KeyError:
            tally[self._meters.misses] += 1
            return None if self.common is None else self._from_common(key)
        tally[self._meters.hits] += 1
        cost = self._cost(found)
        tally[self._meters.found] += cost
        if self.demand is not None:
            self.demand.use(key, cost)
        return found

    def put(self, key: bytes, value: V, *, spare: bool = False) -> int:
        """Store a value as `Cache.put` does, and in `common`. A value larger than half the limit is not stored, because
        it would evict most others."""
        cost = self._cost(value)
        if self.demand is not None and not spare and key not in self._values:  # Else `get` has counted it.
            self.demand.use(key, cost)
        if not self.limit or not self.takes(cost):
            return 0
        if self.common is not None and self._form is not None and (encoded := self._form.encode(value)):
            self.common.put(self._form.name + key, encoded)
        with self._lock:
            return super().put(key, value, spare=spare)

    def _from_common(self, key: bytes) -> V | None:
        if self.common is None or self._form is None:
            return None
        found = self.common.get(self._form.name + key)
        if found is None:
            return None
        value = self._form.decode(found)
        cost = self._cost(value)
        if self.demand is not None:
            self.demand.use(key, cost)
        if self.limit and self.takes(cost):
            with self._lock:
                super().put(key, value)
        return value

    def takes(self, cost: int) -> bool:
        """Tell whether a value of this cost would be stored."""
        return cost <= self.limit // 2

    def resize(self, limit: int) -> None:
        """Change the limit; the least recently used values are dropped if needed."""
        with self._lock:
            self.limit = limit
            self.shrink()


class CachedText(NamedTuple):
    """A fulltext and its meta. `proved`: True if it was found to match its key or check."""

    text: bytes
    proved: bool
    meta: bytes = b""


def encode_text(kept: CachedText) -> bytes | None:
    """Encode a proved text for `Form`. Return None if the text was not proved."""
    return len(kept.meta).to_bytes(4, "little") + kept.meta + kept.text if kept.proved else None


def decode_text(found: bytes) -> CachedText:
    """Decode a text that `encode_text` encoded. The text counts as proved."""
    start = 4 + int.from_bytes(found[:4], "little")
    return CachedText(found[start:], True, found[4:start])


class TextCache(SharedCache[CachedText]):
    """The cache of fulltexts of records. Proved texts are also stored in `common`."""

    def __init__(self, limit: int = TEXT_BYTES) -> None:
        form = Form(b"text ", encode_text, decode_text)
        super().__init__(limit, lambda kept: len(kept.text) + len(kept.meta) + OF_TEXT, TEXT_CACHE, form)
        self.remote: Common | None = None
        """A cache of texts on other machines (memcached), by incarnation, kind and key. Its texts must be proved before
        use."""


Block = tuple[bytes | None, ...]
"""Encoded rows of a log for neighbouring revisions. A row is empty if a log does not show its revision, and None if it
was not read yet."""


def cost_of_block(block: Block) -> int:
    """Return the size of a block in memory in bytes, including Python's objects."""
    return 8 * len(block) + sum(len(row) + OF_ROW for row in block if row is not None)


_block = msgspec.msgpack.Decoder(tuple[bytes | None, ...])

HEADERS: Final = SharedCache[Block](
    HEADER_BYTES, cost_of_block, HEADER_CACHE, Form(b"log ", msgspec.msgpack.encode, _block.decode)
)
"""The cached rows of logs of all repositories of the process, by form, pack and block."""
