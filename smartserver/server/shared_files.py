"""Files that the servers of one store share, in its database: the rules of access, and the tokens.

Each server asks twice a second which versions there are. While it cannot, it uses none: a token that was revoked must
not count where nobody hears of that.
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
"""The files."""

PERIOD = 0.5
"""Seconds between two questions."""
STALE = 5.0
"""Seconds after which an answer counts no more."""


class SharedFiles:
    """The content that the database has of these files; usable from several threads, and in a process that was
    forked."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds that only rise."""
        self._database, self._clock = database, clock
        self._guard = threading.Lock()
        self._process = 0
        self._read_at = -STALE
        self._files: dict[str, tuple[int, bytes]] = {}
        """Version and content of each."""

    def version(self, name: str) -> int:
        """The newest version of a file; 0 where there is none.

        Raises:
            TransportFailed: the database was not read for `STALE` seconds.
        """
        with self._guard:
            if self._process != os.getpid():
                self._process = os.getpid()
                threading.Thread(target=self._poll, name="shared files", daemon=True).start()
                self._ask()
        if self._clock() - self._read_at >= STALE:
            raise TransportFailed("", "the database with the rules of access is away")
        return self._files.get(name, (0, b""))[0]

    def read(self, name: str) -> bytes | None:
        """The content of a file, as last read; None where there is none."""
        return self._files[name][1] if name in self._files else None

    def source(self, name: str) -> SharedFile:
        """One of the files."""
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
            except TransportFailed:  # It said so in the log.
                continue
            except Exception as error:  # Another database may have had the address for a moment.
                log.warning("the rules of access cannot be read: %s", error, exc_info=not isinstance(error, CodedError))


class SharedFile:
    """A file that is watched."""

    def __init__(self, files: SharedFiles, name: str) -> None:
        self._files, self._name = files, name

    def __str__(self) -> str:
        return f"the {self._name} in the database"

    def signature(self) -> tuple[int, ...]:
        """Its version. Raises as `SharedFiles.version`."""
        version = self._files.version(self._name)
        return (version,) if version else ()

    def read(self) -> bytes | None:
        """Its content."""
        return self._files.read(self._name)


class SharedTokens:
    """The place of tokens, as `tokens.TokenPlace`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def changing(self) -> Iterator[tuple[bytes | None, Callable[[bytes], object]]]:
        """The tokens, and what replaces them; nobody else changes them meanwhile."""
        try:
            with self._database.changing(TOKENS) as held:
                yield held
        except CodedError as error:
            raise UnusableFile(str(error)) from None

    def tokens(self) -> Tokens:
        """The tokens that there are. Raises as `changing`."""
        with self.changing() as (content, _):
            return Tokens(content or b"")
