"""`OpenFiles`: the number of files that a server keeps open for answers that are not sent yet."""

from __future__ import annotations

import threading
import weakref

from smartserver.errors import LimitExceeded
from smartserver.wire.limits import MAX_FILE_CALLS
from transports.base import ReadFile

MAX_OF_CONNECTION = MAX_FILE_CALLS
"""The most open files of one connection: as many as one request can open. Our clients read an answer before they send
the next request."""

MAX_OF_SITE = 4 * MAX_FILE_CALLS
"""The most open files of all connections. With the packs of 256 repositories (11,000 descriptors) and 1,088
connections, they stay below 20,000, a usual hard limit."""

SHARE = 4
"""The open files may use one in `SHARE` of the process's descriptors, if that is less than `MAX_OF_SITE`."""


class OpenFiles:
    """A count of open files with a limit. It may be used by several threads. `of`: a wider count that includes this
    one."""

    def __init__(self, most: int, of: OpenFiles | None = None) -> None:
        self.most = most
        self._of = of
        self.count = 0
        """The number of files that are open."""
        self._mutex = threading.RLock()
        """A reentrant lock. It is reentrant because the garbage collector may finalize a file, which calls `_remove`,
        while this thread has the lock."""

    def hold(self, file: ReadFile) -> None:
        """Count a file as open until the last reference to it is dropped, which closes it.

        Raises:
            LimitExceeded: too many files are open.
        """
        self._add()
        weakref.finalize(file, self._remove).atexit = False

    def _add(self) -> None:
        with self._mutex:
            if self.count >= self.most:
                if self._of is not None:
                    what = "open files of a connection (the client has not read the content that it requested)"
                else:
                    what = "open files of all connections (clients have not read the content that they requested)"
                raise LimitExceeded(what, self.count + 1, self.most)
            self.count += 1
        try:
            if self._of is not None:
                self._of._add()
        except LimitExceeded:
            self._remove_own()
            raise

    def _remove(self) -> None:
        self._remove_own()
        if self._of is not None:
            self._of._remove()

    def _remove_own(self) -> None:
        with self._mutex:
            self.count -= 1
