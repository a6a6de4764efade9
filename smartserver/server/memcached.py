"""`Memcached`: texts of files in memcached servers, by the library `pymemcache`. The caller checks each text.

A server that cannot be reached, or does not answer within `TIMEOUT`, is not used for `DEAD` seconds, in which the other
servers get its share of the keys. If a server sends an invalid answer or ends its connections, no server is used for
that time. So a request waits at most once for each server, and never gets an error.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final

from pymemcache.client.hash import HashClient
from pymemcache.exceptions import MemcacheError, MemcacheUnexpectedCloseError

from smartserver.meters import MEMCACHED, MEMCACHED_FAILURES, here

TIMEOUT: Final = 0.05
"""Seconds to wait for an answer or a connection."""
DEAD: Final = 10.0
"""Seconds for which a failed server is not used."""
MOST: Final = 1 << 20
"""The most bytes of a value: memcached's default."""
PREFIX: Final = b"hpss1:"
"""The prefix of keys, with the version of the values' form."""

_FAILURES: Final = (MemcacheError, LookupError, ValueError, RuntimeError)
"""Errors of the library besides OSError: for answers that it cannot parse, and when several threads leave out a server
at once."""


class _Socket(socket.socket):
    """A socket whose reads fail if a whole answer takes longer than `TIMEOUT`, or is longer than a value with its
    header."""

    _end = 0.0
    _left = 0

    def sendall(self, data: Any, flags: int = 0) -> None:
        self._end = time.monotonic() + TIMEOUT
        self._left = MOST + (4 << 10)
        self.settimeout(TIMEOUT)
        super().sendall(data, flags)

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        rest = self._end - time.monotonic()
        if rest <= 0:
            raise TimeoutError("memcached sends its answer too slowly")
        self.settimeout(rest)
        data = super().recv(bufsize, flags)
        self._left -= len(data)
        if self._left < 0:
            raise OSError("memcached sends more than a value")
        return data


class _Sockets:
    """A stand-in for the module `socket` whose sockets are `_Socket`."""

    socket = _Socket

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)


class Memcached:
    """A cache on several servers. Any thread may use it."""

    def __init__(self, servers: Sequence[tuple[str, int]], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._client: Any = HashClient(
            servers, connect_timeout=TIMEOUT, timeout=TIMEOUT, no_delay=True, use_pooling=True, retry_attempts=0,
            dead_timeout=DEAD, ignore_exc=False, key_prefix=PREFIX, lock_generator=threading.Lock,
            socket_module=_Sockets(),
        )  # fmt: skip
        self._closed_until = self._ended = -DEAD

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None. The value is not checked."""
        found = self._ask(lambda name: self._client.get(name), key)
        tally = here.tally
        if isinstance(found, bytes):
            tally[MEMCACHED.hits] += 1
            tally[MEMCACHED.found] += len(found)
            return found
        tally[MEMCACHED.misses] += 1
        return None

    def put(self, key: bytes, value: bytes) -> None:
        """Store a value if it has at most `MOST` bytes, without waiting for an answer."""
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
        except _FAILURES as error:
            here.tally[MEMCACHED_FAILURES] += type(error) is not MemcacheError  # That is: no server is left.
            is_first = isinstance(error, MemcacheUnexpectedCloseError) and began - self._ended > DEAD
            self._ended = began
            if not is_first:  # A restarted server has closed the old connections.
                self._closed_until = self._clock() + DEAD
            return None
        return found
