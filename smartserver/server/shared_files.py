"""The files that all servers of a store share in the database of the store: the rules of access, and the tokens.

Each server reads their versions twice a second. While the database is unreachable, a server uses none of the files,
because it could otherwise accept a token that was revoked meanwhile.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from smartserver.server.tokens import Tokens
from smartserver.server.watched import UnusableFile
from smartserver.store.postgres import Database
from transports.errors import CodedError, TransportFailed

log = logging.getLogger("smartserver")

RULES, TOKENS = "access", "tokens"
"""The names of the files."""

PERIOD = 0.5
"""Seconds between two reads of the versions."""
STALE = 5.0
"""Seconds after which the last read versions are no longer used."""


class SharedFiles:
    """The content of the shared files in the database. Several threads may use it, and so may a forked process."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: a monotonic clock in seconds."""
        self._database, self._clock = database, clock
        self._guard = threading.Lock()
        self._process = 0
        self._read_at = -STALE
        self._files: dict[str, tuple[int, bytes]] = {}
        """The version and content of each file, by its name."""

    def version(self, name: str) -> int:
        """Return the newest version of a file; 0 if the file does not exist.

        Raises:
            TransportFailed: the database was not read for `STALE` seconds.
        """
        with self._guard:
            if self._process != os.getpid():
                self._process = os.getpid()
                threading.Thread(target=self._poll, name="shared files", daemon=True).start()
                self._ask()
        if self._clock() - self._read_at >= STALE:
            raise TransportFailed("", "the database with the rules of access cannot be reached")
        return self._files.get(name, (0, b""))[0]

    def read(self, name: str) -> bytes | None:
        """Return the last read content of a file; None if the file does not exist."""
        return self._files[name][1] if name in self._files else None

    def source(self, name: str) -> SharedFile:
        """Return one of the files, to be watched."""
        return SharedFile(self, name)

    def _ask(self) -> None:
        begin = self._clock()
        for name, version in self._database.versions().items():
            if self.read(name) is None or self._files[name][0] != version:
                self._files[name] = version, self._database.file(name) or b""
        self._read_at = begin

    def _poll(self) -> None:
        while True:
            time.sleep(PERIOD)
            try:
                self._ask()
            except TransportFailed:  # It is logged already.
                continue
            except Exception as error:  # Another database may have been at the address.
                log.warning("the rules of access cannot be read: %s", error, exc_info=not isinstance(error, CodedError))


class SharedFile:
    """One of the shared files; implements `watched.WatchedSource`."""

    def __init__(self, files: SharedFiles, name: str) -> None:
        self._files, self._name = files, name

    def __str__(self) -> str:
        return f"the {self._name} in the database"

    def signature(self) -> tuple[int, ...]:
        """Return the version of the file. Errors are those of `SharedFiles.version`."""
        version = self._files.version(self._name)
        return (version,) if version else ()

    def read(self) -> bytes | None:
        """Return the content of the file."""
        return self._files.read(self._name)


class SharedTokens:
    """The tokens in the database; implements `tokens.TokenPlace`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def changing(self) -> Iterator[tuple[bytes | None, Callable[[bytes], object]]]:
        """Lock the tokens, and yield their content and a function that replaces it."""
        try:
            with self._database.changing(TOKENS) as held:
                yield held
        except CodedError as error:
            raise UnusableFile(str(error)) from None

    def tokens(self) -> Tokens:
        """Return the current tokens. Errors are those of `changing`."""
        with self.changing() as (content, _):
            return Tokens(content or b"")
