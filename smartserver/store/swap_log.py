"""The log of swaps: who changed what, and what was answered. The newest entries lie in the root, older ones in files.

It answers a repeated request, says what changed since a version, and is the audit trail. Files of the last 24 hours
are named in the root.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated

import msgspec

from smartserver.errors import CorruptFile
from smartserver.store.tables import Bytes16, Natural
from transports.base import Transport
from transports.errors import TransportError

MAGIC = b"hpss-log"
VERSION = 1
HEADER = struct.Struct("<8sHHI")
"""Magic, version, flags (0), count of entries; a msgpack array of the entries follows."""
TRAILER = 16
"""Bytes of the BLAKE2b that ends the file."""

KEPT = 24 * 3600 * 1000
"""Milliseconds a log file stays named in the root after its last entry."""
KEPT_FILES = 16
"""Newest log files that stay named however old they are: some 16 MiB. A clock that jumps a day ahead must not make the
log forget a request that is about to be repeated."""
CLOCK_MARGIN = 600 * 1000
"""Milliseconds by which the clocks of servers that share a store may differ."""
LARGE_ENTRY = 16 * 1024
"""An entry of more bytes never lies in the root (a mirror push of 20,000 refs takes 2 MB)."""
MERGED_FILE = 1024 * 1024
"""Log files are joined up to this size: a fold stays a matter of milliseconds."""
MARK = 2
"""Bytes of a mark: of clients that know the same version of another line one in 65,536 is not noticed. It is in every
request and reply: with four bytes a small push had more than another tool's."""
MAX_FILES = 128
"""Log files named in the root (about 6 KB of it)."""


class LogChange(msgspec.Struct, frozen=True, array_like=True):
    """One key of a table, before and after."""

    table: str
    key: bytes
    old: bytes | None
    new: bytes | None


class LogEntry(msgspec.Struct, frozen=True, array_like=True):
    """One swap: the version it made, when (milliseconds since the epoch), who asked, and what was answered."""

    version: Natural
    time: Natural
    user: str
    request: bytes
    outcomes: bytes
    changes: list[LogChange] = []

    @property
    def mark(self) -> int:
        """What tells the versions from this one on from those of another line, as a backup begins that was put back."""
        return int.from_bytes(self.request[:MARK], "big")


class NewLogEntry(msgspec.Struct, frozen=True):
    """What the caller knows of a swap: user, request id (16 bytes), encoded outcomes of its calls."""

    user: str
    request: bytes
    outcomes: bytes


class LogFile(msgspec.Struct, frozen=True, array_like=True):
    """What the root says of a log file; `time` is its last entry's."""

    first: Natural
    last: Natural
    time: Natural
    length: Natural
    hash: Bytes16
    name: Annotated[bytes, msgspec.Meta(min_length=8, max_length=8)]

    @property
    def path(self) -> str:
        """Where it lies in the repository: a crash may leave one that no root names, so the version is not enough."""
        return f"log/{self.last}-{self.name.hex()}"


_DECODER = msgspec.msgpack.Decoder(list[LogEntry])


def encode_log(entries: Sequence[LogEntry]) -> bytes:
    """The bytes of a log file."""
    content = HEADER.pack(MAGIC, VERSION, 0, len(entries)) + msgspec.msgpack.encode(entries)
    return content + blake2b(content, digest_size=TRAILER).digest()


def log_file(entries: Sequence[LogEntry], name: bytes) -> tuple[LogFile, bytes]:
    """A new log file: its line for the root and its content."""
    content = encode_log(entries)
    last = entries[-1]
    return LogFile(entries[0].version, last.version, last.time, len(content), content[-TRAILER:], name), content


def read_log(transport: Transport, file: LogFile) -> bytes:
    """The checked content of a log file.

    Raises:
        CorruptFile: it is not what the root says.
        NoSuchFile: a later root dropped it; read the root again.
    """
    content = transport.get(file.path)
    if len(content) != file.length:
        raise CorruptFile(file.path, 0, f"{len(content)} bytes, expected {file.length}")
    if content[-TRAILER:] != file.hash:
        raise CorruptFile(file.path, len(content) - TRAILER, "its check is not the one the root has")
    if blake2b(memoryview(content)[:-TRAILER], digest_size=TRAILER).digest() != file.hash:
        raise CorruptFile(file.path, 0, "the content does not match its check")
    magic, version, flags, _ = HEADER.unpack_from(content)
    if (magic, version, flags) != (MAGIC, VERSION, 0):
        raise CorruptFile(file.path, 0, f"begins with {content[:12]!r}: no log this release reads")
    return content


def decode_log(content: bytes, path: str) -> list[LogEntry]:
    """The entries of a checked log file, oldest first.

    Raises:
        CorruptFile: they are not entries.
    """
    try:
        entries = _DECODER.decode(memoryview(content)[HEADER.size : -TRAILER])
    except msgspec.DecodeError as wrong:
        raise CorruptFile(path, HEADER.size, str(wrong)) from wrong
    count = HEADER.unpack_from(content)[3]
    if len(entries) != count:
        raise CorruptFile(path, 12, f"{count} entries stated, {len(entries)} found")
    return entries


def find_request(entries: Sequence[LogEntry], request: bytes) -> LogEntry | None:
    """The entry of a request, newest first."""
    return next((entry for entry in reversed(entries) if entry.request == request), None)


def find_in_file(transport: Transport, file: LogFile, request: bytes) -> LogEntry | None:
    """The entry of a request in a log file; decodes only a file that has the 16 bytes in it.

    Raises:
        CorruptFile, NoSuchFile: as `read_log`.
    """
    content = read_log(transport, file)
    return find_request(decode_log(content, file.path), request) if request in content else None


def older_half(entries: Sequence[LogEntry]) -> tuple[list[LogEntry], list[LogEntry]]:
    """The entries split by bytes: the older ones, and the newest that take at most half, at least one of several."""
    sizes = [len(msgspec.msgpack.encode(entry)) for entry in entries]
    room = sum(sizes) // 2
    at = len(entries)
    while at and sizes[at - 1] <= room:
        at -= 1
        room -= sizes[at]
    at = min(at, max(1, len(entries) - 1))
    return list(entries[:at]), list(entries[at:])


def absorb(transport: Transport, files: list[LogFile], moved: list[LogEntry]) -> tuple[list[LogFile], list[LogEntry]]:
    """Join the newest files to the entries that are about to become one, as long as they are no larger.

    So a byte is rewritten few times and the root names few files. A file that cannot be read stays as it is: damage to
    old history must not stop new pushes.
    """
    kept = list(files)
    size = len(msgspec.msgpack.encode(moved))
    while kept and kept[-1].length <= size and kept[-1].length + size <= MERGED_FILE:
        try:
            older = decode_log(read_log(transport, kept[-1]), kept[-1].path)
        except (CorruptFile, TransportError):
            break
        size += kept.pop().length
        moved = older + moved
    return kept, moved
