"""A cursor: the newest version of a repository whose changes were sent to a receiver. It is a file beside the packs.

The file with the highest number is the cursor: `packs/after-RECEIVER-NUMBER`. To move it, a server publishes the file
with the next number. Only one server succeeds; all others read the folder again. So the cursor is a lease too. A server
takes the lease before it sends changes. Another server waits until the lease has expired by the store's clock, or is
given back. A crash leaves the cursor unchanged, and some changes are sent twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from smartserver.errors import CorruptFile
from smartserver.store.format import INCOMING, PACKS
from smartserver.store.model import KnownVersion
from smartserver.store.quarantine import store_time
from smartserver.store.record import Natural
from transports.base import Transport
from transports.errors import FileExists, TransportError
from transports.steps import Delete, Get, GetStat, ListDirectory, Publish, Put, SyncDirectory


class CursorContent(msgspec.Struct, frozen=True, array_like=True):
    """The content of a cursor's file. `position`: the newest version that was sent; None if none was. `holder`: the
    server that has the lease; empty if no server has it. `lease`: the seconds that the lease lasts from the
    modification time of the file on."""

    position: KnownVersion | None = None
    holder: bytes = b""
    lease: Natural = 0


class Cursor(NamedTuple):
    """A cursor that was read. `number`: its number; 0 if no cursor exists. `modified`: the modification time of its
    file in seconds since the epoch."""

    number: int
    content: CursorContent
    modified: float


_DECODER = msgspec.msgpack.Decoder(CursorContent)


class CursorFile:
    """The cursor of one receiver in one repository."""

    def __init__(self, folder: Transport, receiver: bytes, randomness: Callable[[int], bytes]) -> None:
        """`receiver`: 8 bytes that identify the receiver."""
        self._folder = folder
        self._begin = f"after-{receiver.hex()}-"
        self._randomness = randomness

    def read(self) -> Cursor:
        """Read the file with the highest number. If there is none, return a cursor with the number 0."""
        while True:
            numbers = self._numbers()
            if not numbers:
                return Cursor(0, CursorContent(), 0.0)
            file, stat = Get(self._path(numbers[-1])), GetStat(self._path(numbers[-1]))
            self._folder.perform([file, stat])
            if file.result is None or stat.result is None:
                continue  # The cursor was moved meanwhile.
            try:
                return Cursor(numbers[-1], _DECODER.decode(file.result), stat.result.modified)
            except msgspec.DecodeError as error:
                raise CorruptFile(
                    file.path, 0, f"{error}; delete the file, then the hooks run for all refs again"
                ) from error

    def is_held(self, cursor: Cursor, own: bytes) -> bool:
        """Tell whether another server than `own` holds the lease."""
        content = cursor.content
        if content.holder in (b"", own):
            return False
        return store_time(self._folder, self._randomness) - cursor.modified < content.lease

    def move(self, cursor: Cursor, content: CursorContent) -> Cursor | None:
        """Replace the cursor. Return the new cursor, or None if another server replaced it first."""
        number = cursor.number + 1
        temporary = f"{INCOMING}/{self._randomness(8).hex()}.cursor"
        stat = GetStat(self._path(number))
        put, publish = Put(temporary, msgspec.msgpack.encode(content)), Publish(temporary, self._path(number))
        try:
            self._folder.perform([put, publish, SyncDirectory(PACKS), stat])
        except FileExists:
            self._discard([temporary])
            return None
        numbers = self._numbers()
        if numbers[-1:] != [number]:  # Another server moved the cursor further and had deleted this number.
            self._discard([self._path(number)])
            return None
        self._discard([self._path(old) for old in numbers if old < number])
        return Cursor(number, content, 0.0 if stat.result is None else stat.result.modified)

    def _numbers(self) -> list[int]:
        names = ListDirectory(PACKS)
        self._folder.perform([names])
        ends = [name.removeprefix(self._begin) for name in names.result or () if name.startswith(self._begin)]
        return sorted(int(end) for end in ends if end.isdecimal())

    def _path(self, number: int) -> str:
        return f"{PACKS}/{self._begin}{number:010}"

    def _discard(self, paths: list[str]) -> None:
        for path in paths:
            with contextlib.suppress(TransportError):  # Another server was first, or the next move does it.
                self._folder.perform([Delete(path)])
