"""`Memcached`: texts of files in memcached servers, by the library `pymemcache`. A text is checked by who asks for it.

A server that cannot be reached, or does not answer within `TIMEOUT`, is left out for `DEAD` seconds, and its share is
looked for on the others. Where one answers what is no answer, ends its connections, or sends small pieces for too long,
none is asked for that time. So a request waits once, and never gets an error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final

from pymemcache.client.hash import HashClient
from pymemcache.exceptions import MemcacheError, MemcacheUnexpectedCloseError

from smartserver.meters import MEMCACHED, MEMCACHED_FAILURES, here

TIMEOUT: Final = 0.05
"""Seconds for an answer, or a connection."""
DEAD: Final = 10.0
"""Seconds for which a server that failed is left alone."""
MOST: Final = 1 << 20
"""Bytes of a value, as memcached has it unless told otherwise."""
PREFIX: Final = b"hpss1:"
"""Of keys, with the version of what the values look like."""

_FAILURES: Final = (MemcacheError, LookupError, ValueError)
"""What the library raises besides OSError; the last two of answers that it cannot parse."""


class Memcached:
    """Some servers. For any number of threads."""

    def __init__(self, servers: Sequence[tuple[str, int]], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._client: Any = HashClient(
            servers, connect_timeout=TIMEOUT, timeout=TIMEOUT, no_delay=True, use_pooling=True, retry_attempts=0,
            dead_timeout=DEAD, ignore_exc=False, key_prefix=PREFIX, lock_generator=threading.Lock,
        )  # fmt: skip
        self._closed_until = self._ended = -DEAD

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, which may be anything."""
        found = self._ask(lambda name: self._client.get(name), key)
        tally = here.tally
        if isinstance(found, bytes):
            tally[MEMCACHED.hits] += 1
            tally[MEMCACHED.found] += len(found)
            return found
        tally[MEMCACHED.misses] += 1
        return None

    def put(self, key: bytes, value: bytes) -> None:
        """Keep a value; no answer is waited for."""
        if len(value) <= MOST:
            self._ask(lambda name: self._client.set(name, value, noreply=True), key)

    def close(self) -> None:
        """Close the connections."""
        for client in self._client.clients.values():
            client.close()

    def _ask(self, call: Callable[[bytes], object], key: bytes) -> object:
        began = self._clock()
        if began < self._closed_until:
            return None
        try:
            found = call(blake2b(key, digest_size=20).hexdigest().encode())
        except OSError:  # The library leaves this server out.
            here.tally[MEMCACHED_FAILURES] += 1
            return None
        except _FAILURES as wrong:
            here.tally[MEMCACHED_FAILURES] += type(wrong) is not MemcacheError  # Else there is none to be asked.
            is_first = isinstance(wrong, MemcacheUnexpectedCloseError) and began - self._ended > DEAD
            self._ended = began
            if not is_first:  # One that was started anew has ended the connections of before.
                self._closed_until = self._clock() + DEAD
            return None
        if self._clock() - began > 2 * TIMEOUT:
            self._closed_until = self._clock() + DEAD
        return found
