"""The body of an HTTP request, in an unnamed file. Only parts that are not written yet are in memory.

Chunks arrive on the I/O thread, and are written in a lane of the executor. A gzip body is decompressed as it is
written, up to a limit.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable
from typing import Final

from smartserver.server.executor import Executor, Lane
from smartserver.server.fair import Tenant
from smartserver.vcs.git.build import unnamed_file

HIGH: Final = 4 << 20
"""The most unwritten bytes. Above it, reading stops."""

LOW: Final = 1 << 20
"""Unwritten bytes below which reading is resumed."""

SMALL: Final = 64 << 10
"""The most bytes that stay in memory until `open` writes them. Most bodies have no more."""

_PIECE: Final = 1 << 20
_GZIP: Final = 16 + zlib.MAX_WBITS


class BodyTooLarge(Exception):
    """The body has more bytes than its request may have."""


class BadBody(Exception):
    """The body does not have the encoding in the head of its request, or the client disconnected."""


class RequestBody:
    """The body of one request."""

    def __init__(
        self, folder: str, executor: Executor, client: Tenant, flow: Callable[[bool], None], *, gzip: bool, most: int
    ) -> None:
        """`folder`: the folder in which the file is created. `flow`: is called with False to pause reading, and with
        True to resume it. `most`: the most bytes of the decompressed body."""
        self._folder = folder
        self._executor = executor
        self._client = client
        self._flow = flow
        self._decoder = zlib.decompressobj(_GZIP) if gzip else None
        self._most = most
        self._waiting: list[bytes] = []
        self._held = 0
        """The number of bytes that were received and are not written yet."""
        self._is_writing = self._is_paused = self._is_over = False
        self._guard = threading.Lock()
        """A lock that is held while `open` takes the file, and while `abandon` closes it. The file is not closed while
        a lane writes to it, because its descriptor could be reused at once."""
        self._then: Callable[[], None] | None = None
        self._file = -1
        self._size = 0
        self.came = 0
        """Bytes that were received."""
        self.error: Exception | None = None
        """The error that `open` will raise; None if no error has occurred so far."""

    # -- on the I/O thread

    def add(self, chunk: bytes) -> None:
        """Add a received chunk to the body."""
        self.came += len(chunk)
        if self.error is not None or self._is_over:
            return
        self._waiting.append(chunk)
        self._held += len(chunk)
        if self._held > HIGH and not self._is_paused:
            self._is_paused = True
            self._flow(False)
        if self._held > SMALL and not self._is_writing:
            self._write_later()

    def when_written(self, then: Callable[[], None]) -> None:
        """Note that the whole body was received. Call `then` once no chunk is being written; `open` writes the rest."""
        self._then = then
        if not self._is_writing:
            then()

    def abandon(self) -> None:
        """Delete the body, which is no longer needed."""
        with self._guard:
            self._is_over = True
            self._waiting, self._then = [], None
            if not self._is_writing and self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _write_later(self) -> None:
        self._is_writing = True
        chunks, self._waiting = self._waiting, []
        size = sum(map(len, chunks))

        def written(error: Exception | None) -> None:
            self._is_writing = False
            self._held -= size
            self.error = self.error or error
            if self.error is not None:  # The rest is received, and not kept.
                self._waiting, self._held = [], 0
            if self._is_over:
                self.abandon()
                return
            if self._is_paused and self._held < LOW:
                self._is_paused = False
                self._flow(True)
            if self._held > SMALL and self.error is None:
                self._write_later()
            elif self._then is not None:
                self._then()

        self._executor.run(lambda: self._tried(chunks), written, Lane.BODY, self._client)

    # -- in a lane

    def open(self) -> int:
        """Write the rest of the body, and return the descriptor of the file at its beginning. The caller must close it.

        Raises:
            BodyTooLarge, BadBody: the body is not valid.
            OSError: the body cannot be written.
        """
        with self._guard:
            if self._is_over:
                raise BadBody("the client is gone")
            self._is_writing = True  # For good: from here on, the caller owns the file.
        error = self.error or self._tried(self._waiting)
        if error is None and self._decoder is not None and self.came and not self._decoder.eof:
            error = BadBody("the body ends before its gzip stream does")
        file, self._file = self._file, -1
        self._waiting = []
        if error is not None:
            if file >= 0:
                os.close(file)
            raise error
        if file < 0:
            file = self._new_file()
        os.lseek(file, 0, os.SEEK_SET)
        return file

    def _tried(self, chunks: list[bytes]) -> Exception | None:
        try:
            for chunk in chunks:
                self._write(chunk)
        except (BodyTooLarge, BadBody, OSError) as error:
            return error
        return None

    def _write(self, chunk: bytes) -> None:
        if self._decoder is None:
            self._append(chunk)
            return
        left = chunk
        while left:
            if self._decoder.eof:
                raise BadBody("bytes follow the gzip stream of the body")
            try:
                self._append(self._decoder.decompress(left, _PIECE))
            except zlib.error as error:
                raise BadBody(f"the body is not in gzip: {error}") from None
            left = self._decoder.unconsumed_tail or self._decoder.unused_data

    def _new_file(self) -> int:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        return unnamed_file(self._folder)

    def _append(self, content: bytes) -> None:
        self._size += len(content)
        if self._size > self._most:
            raise BodyTooLarge(f"a body of more than {self._most} bytes")
        if self._file < 0:
            self._file = self._new_file()
        view = memoryview(content)
        while view:
            view = view[os.write(self._file, view) :]
