"""A connection to a site in the same process. Through it, a command works on a store without another process, as if on
a server.

The connection is both the shell of the session and the medium of the client. Nothing runs in the background. A request
is carried out before the client's write returns, and the body of an answer is read from the store as the client reads
it.
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
# The only user is told by the errors. Without this handler, the log would be printed too.


class SameProcess:
    """A connection with both of its ends."""

    def __init__(
        self,
        site: Site,
        admission: Admission,
        peer: str = "this process",
        via: str = "",
        executor: Executor | None = None,
    ) -> None:
        """`peer`: the client for which this process makes requests. `via`: the protocol of that client, such as
        `https`. `executor`: must run work at once if the client waits for it."""
        self._answers: deque[bytes] = deque()
        self._closed = False
        self._session = Session(site, admission, self, executor or InlineExecutor(), peer)
        self._session.via = via
        self._session.is_local = True

    # -- the client's medium

    def poll(self, *, read: bool, write: bool, timeout: float | None = None) -> tuple[bool, bool]:
        """Return the directions that are ready. This never waits, because nothing arrives by waiting.

        For a caller that waits only to read, the result is always True, so that its read raises an error instead of
        waiting for ever."""
        return read and bool(self._answers or self._closed or not write), write

    def read(self, size: int) -> bytes:
        """Return bytes of the answer; empty at the end.

        Raises:
            ConnectionLost: no bytes are available, and none can arrive until more is written.
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
        """Carry out the requests in `data`.

        Raises:
            ConnectionLost: either side has closed.
        """
        if self._closed:
            raise ConnectionLost("the connection to this process is closed")
        self._session.data_received(bytes(data))
        return len(data)

    # -- the session's shell

    def write(self, data: bytes) -> None:
        """Keep bytes until the client reads them. No more of a body is read from the store before that."""
        if not self._closed:
            self._answers.append(data)
            self._session.pause_writing()

    def close(self) -> None:
        """Close both ends. Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            self._session.connection_lost()

    abort = close

    def pause_reading(self) -> None:
        """Do nothing: written bytes are processed at once, so they never accumulate."""

    resume_reading = pause_reading
