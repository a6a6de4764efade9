"""A connection to a site in the same process, for commands that work on a store themselves as they would on a server.

It is what carries a session's bytes, and a client's medium too. Nothing runs beside it: what the client writes is done
before its write returns, and the body of an answer is read from the store as the client reads it.
"""

from __future__ import annotations

import logging
from collections import deque

from smartserver.client.medium import ConnectionLost
from smartserver.server.access import Admission
from smartserver.server.executor import Executor, InlineExecutor
from smartserver.server.session import Session
from smartserver.server.site import Site

logging.getLogger("smartserver").addHandler(logging.NullHandler())
# What a server's administrator reads there its one user is told by the errors; without this it would be printed, too.


class SameProcess:
    """The two ends of a connection."""

    def __init__(
        self,
        site: Site,
        admission: Admission,
        peer: str = "this process",
        via: str = "",
        executor: Executor | None = None,
    ) -> None:
        """`peer`, `via`: the client for which this process asks, and the way it came in. `executor`: runs what the
        client waits for at once."""
        self._answers: deque[bytes] = deque()
        self._closed = False
        self._session = Session(site, admission, self, executor or InlineExecutor(), peer)
        self._session.via = via
        self._session.is_local = True

    # -- the client's medium

    def poll(self, *, read: bool, write: bool, timeout: float | None = None) -> tuple[bool, bool]:
        """The directions that can go on, at once: nothing comes by waiting. Reading is always reported ready where no
        answer is owed, so that a caller which would wait gets an error."""
        return read and bool(self._answers or self._closed or not write), write

    def read(self, size: int) -> bytes:
        """The bytes of the answer; empty at the end.

        Raises:
            ConnectionLost: nothing was, and nothing can come before more is written.
        """
        if not self._answers:
            if self._closed:
                return b""
            raise ConnectionLost("this process has answered all that it was asked")
        first = self._answers.popleft()
        if len(first) > size:
            self._answers.appendleft(first[size:])
            first = first[:size]
        if not self._answers and not self._closed:
            self._session.resume_writing()
        return first

    def write_some(self, data: memoryview) -> int:
        """Have it done.

        Raises:
            ConnectionLost: either side has closed.
        """
        if self._closed:
            raise ConnectionLost("the connection to this process is closed")
        self._session.data_received(bytes(data))
        return len(data)

    # -- what carries the session's bytes

    def write(self, data: bytes) -> None:
        """Keep it until it is read. No more of a body is read before that."""
        if not self._closed:
            self._answers.append(data)
            self._session.pause_writing()

    def close(self) -> None:
        """Either side has had enough; closing twice is harmless."""
        if not self._closed:
            self._closed = True
            self._session.connection_lost()

    abort = close

    def pause_reading(self) -> None:
        """Nothing: written bytes are worked on at once, and there are never too many of them."""

    resume_reading = pause_reading
