"""SFTP version 3 (draft-ietf-secsh-filexfer-02, and OpenSSH's PROTOCOL file for its extensions) as bytes: encode
requests and decode answers. No I/O here.

A packet is its length (u32), its type (u8), the id of its request (u32; `INIT` and `VERSION` have none) and the fields
of its type. Strings are a length (u32) and bytes; integers are big-endian.
"""

from __future__ import annotations

import enum
import stat as stat_bits
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from transports.base import EntryKind, Stat

VERSION = 3
"""The newest version that OpenSSH supports, and so the version that all servers support."""

PIECE = 32 * 1024
"""The most bytes of one read or write. Every server must accept packets of 34,000 bytes (draft, section 3). A read of
this size returns fewer bytes only at the end of the file (6.4)."""

MAX_PACKET = 256 * 1024
"""The most bytes of an answer: the limit of OpenSSH's own client (SFTP_MAX_MSG_LENGTH)."""

POSIX_RENAME = b"posix-rename@openssh.com"
FSYNC = b"fsync@openssh.com"
HARDLINK = b"hardlink@openssh.com"


class Open(enum.IntFlag):
    """The flags with which a file is opened."""

    READ = 0x01
    WRITE = 0x02
    CREATE = 0x08
    EXCLUSIVE = 0x20


class _Kind(enum.IntEnum):
    """The type of a packet."""

    INIT = 1
    VERSION = 2
    OPEN = 3
    CLOSE = 4
    READ = 5
    WRITE = 6
    LSTAT = 7
    FSTAT = 8
    OPENDIR = 11
    READDIR = 12
    REMOVE = 13
    MKDIR = 14
    RMDIR = 15
    REALPATH = 16
    STAT = 17
    RENAME = 18
    STATUS = 101
    HANDLE = 102
    CONTENT = 103
    NAMES = 104
    ATTRIBUTES = 105
    EXTENDED = 200


class Code(enum.IntEnum):
    """The codes of a status. Codes from `FILE_EXISTS` on belong to later versions, but some servers send them."""

    OK = 0
    EOF = 1
    NO_SUCH_FILE = 2
    PERMISSION_DENIED = 3
    FAILURE = 4
    BAD_MESSAGE = 5
    NOT_SUPPORTED = 8
    FILE_EXISTS = 11
    WRITE_PROTECT = 12
    NO_SPACE = 14
    QUOTA_EXCEEDED = 15
    DIRECTORY_NOT_EMPTY = 18
    NOT_A_DIRECTORY = 19


class BadPacket(Exception):
    """The server sent bytes that are not SFTP."""


# -- requests


@dataclass(frozen=True, slots=True)
class Request:
    """A request without its id, which is added when it is sent."""

    kind: int
    body: bytes
    answer: int = 0
    """Bytes of a file that the answer is expected to carry."""

    @property
    def weight(self) -> int:
        """The bytes on the link in both directions, as far as they are known before the answer."""
        return len(self.body) + self.answer

    @property
    def opens(self) -> bool:
        """True if the answer to the request may be a handle."""
        return self.kind in (_Kind.OPEN, _Kind.OPENDIR)

    @property
    def closes(self) -> bytes:
        """The handle that the request closes; empty for any other request."""
        return self.body[4:] if self.kind == _Kind.CLOSE else b""

    def packet(self, number: int) -> bytes:
        """Return the request as bytes, with `number` as its id."""
        return struct.pack(">IBI", 5 + len(self.body), self.kind, number) + self.body


@dataclass(frozen=True, slots=True)
class Following:
    """A request on the handle that the last `Request` before it opens. It is sent together with the opening if the
    handle can be predicted (`sftp_handles`). If not, or if the prediction was wrong, its answer is `NOT_SENT`."""

    make: Callable[[bytes], Request]
    """A function that returns the request for a handle."""
    changes: bool = False
    """True if the request changes a file."""

    @property
    def weight(self) -> int:
        """The `Request.weight` that the request will have."""
        return self.make(bytes(4)).weight


def _string(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


_NO_ATTRIBUTES = struct.pack(">I", 0)


def init() -> bytes:
    """Return the client's first packet."""
    return struct.pack(">IBI", 5, _Kind.INIT, VERSION)


def open_file(path: bytes, how: Open) -> Request:
    """Return the request that opens a file; the answer is a `Handle`. The server's umask gives a new file its mode."""
    return Request(_Kind.OPEN, _string(path) + struct.pack(">I", how) + _NO_ATTRIBUTES)


def close(handle: bytes) -> Request:
    """Return the request that closes a handle. The answer is a `Status`, as below where no other is described."""
    return Request(_Kind.CLOSE, _string(handle))


def read(handle: bytes, offset: int, size: int) -> Request:
    """Return the request that reads from a file. The answer is `Content`, or the status `EOF` at the end."""
    return Request(_Kind.READ, _string(handle) + struct.pack(">QI", offset, size), size)


def write(handle: bytes, offset: int, content: bytes | memoryview) -> Request:
    """Return the request that writes `content` at `offset`."""
    head = _string(handle) + struct.pack(">QI", offset, len(content))
    return Request(_Kind.WRITE, b"".join((head, content)))


def fsync(handle: bytes) -> Request:
    """Return the request that syncs a file. It is an extension of OpenSSH: send it only if the server has `FSYNC`."""
    return Request(_Kind.EXTENDED, _string(FSYNC) + _string(handle))


def stat(path: bytes) -> Request:
    """Return the request for the `Attributes` of a path, following links."""
    return Request(_Kind.STAT, _string(path))


def lstat(path: bytes) -> Request:
    """Return the request for the `Attributes` of a path, without following links."""
    return Request(_Kind.LSTAT, _string(path))


def fstat(handle: bytes) -> Request:
    """Return the request for the `Attributes` of an open file."""
    return Request(_Kind.FSTAT, _string(handle))


def open_directory(path: bytes) -> Request:
    """Return the request that opens a folder; the answer is a `Handle`."""
    return Request(_Kind.OPENDIR, _string(path))


def read_directory(handle: bytes) -> Request:
    """Return the request for the next `Names` of an open folder; without more names, the answer is the status `EOF`."""
    return Request(_Kind.READDIR, _string(handle))


def remove(path: bytes) -> Request:
    """Return the request that removes a file."""
    return Request(_Kind.REMOVE, _string(path))


def make_directory(path: bytes) -> Request:
    """Return the request that creates a folder. The server's umask decides its mode."""
    return Request(_Kind.MKDIR, _string(path) + _NO_ATTRIBUTES)


def remove_directory(path: bytes) -> Request:
    """Return the request that removes an empty folder."""
    return Request(_Kind.RMDIR, _string(path))


def real_path(path: bytes) -> Request:
    """Return the request for a path with all links resolved; the answer is `Names` with one name."""
    return Request(_Kind.REALPATH, _string(path))


def rename(source: bytes, target: bytes) -> Request:
    """Return the request that renames a file. By the draft it fails if the target exists; some servers replace it."""
    return Request(_Kind.RENAME, _string(source) + _string(target))


def posix_rename(source: bytes, target: bytes) -> Request:
    """Return the request to rename a file as rename(2) does. Send it only if the server has `POSIX_RENAME`."""
    return Request(_Kind.EXTENDED, _string(POSIX_RENAME) + _string(source) + _string(target))


def hardlink(source: bytes, target: bytes) -> Request:
    """Return the request to make a hard link as link(2) does. Send it only if the server has `HARDLINK`."""
    return Request(_Kind.EXTENDED, _string(HARDLINK) + _string(source) + _string(target))


# -- answers


@dataclass(frozen=True, slots=True)
class Version:
    """The server's first packet."""

    version: int
    extensions: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class Status:
    """The outcome of a request. `code` may be a number that is not a `Code`."""

    code: int
    message: str = ""

    def __str__(self) -> str:
        named = Code(self.code).name.replace("_", " ").lower() if self.code in {*Code} else f"status {self.code}"
        return self.message or named


@dataclass(frozen=True, slots=True)
class Handle:
    """The server's name for an open file or folder."""

    handle: bytes


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes of a file."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Names:
    """Names in a folder."""

    names: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Attributes:
    """A server's description of a file. A missing field is 0."""

    size: int
    mode: int
    modified: int

    @property
    def kind(self) -> EntryKind:
        """The kind of the file."""
        if stat_bits.S_ISREG(self.mode):
            return EntryKind.FILE
        return EntryKind.DIRECTORY if stat_bits.S_ISDIR(self.mode) else EntryKind.OTHER

    @property
    def stat(self) -> Stat:
        """The attributes in the form that a transport returns."""
        return Stat(self.kind, self.size, float(self.modified))


Answer = Status | Handle | Content | Names | Attributes

NOT_SENT = Status(-1, "not sent")
"""The answer to a `Following` that was not sent, or was sent with a wrong handle."""


class _Reader:
    """Reads the fields of a packet one after the other."""

    def __init__(self, packet: bytes) -> None:
        self._body = packet
        self._at = 1  # After the type.

    @property
    def ended(self) -> bool:
        return self._at >= len(self._body)

    def take(self, size: int) -> bytes:
        taken = self._body[self._at : self._at + size]
        if len(taken) != size:
            raise BadPacket(f"expected {size} bytes, got {len(taken)}")
        self._at += size
        return taken

    def u32(self) -> int:
        return int.from_bytes(self.take(4))

    def string(self) -> bytes:
        return self.take(self.u32())

    def attributes(self) -> Attributes:
        flags = self.u32()
        size = int.from_bytes(self.take(8)) if flags & 0x1 else 0
        if flags & 0x2:  # The numbers of owner and group.
            self.take(8)
        mode = self.u32() if flags & 0x4 else 0
        modified = 0
        if flags & 0x8:
            self.take(4)
            modified = self.u32()
        if flags & 0x80000000:
            for _ in range(2 * self.u32()):
                self.string()
        return Attributes(size, mode, modified)


class Packets:
    """The decoder of the bytes that a server sends."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def receive(self, received: bytes) -> Iterator[tuple[int, Answer] | Version]:
        """Yield each answer that is complete now, with the id of its request.

        Raises:
            BadPacket: the bytes are not SFTP; nothing more can be read.
        """
        self._buffer += received
        at = 0
        try:
            while len(self._buffer) - at >= 4:
                size = int.from_bytes(self._buffer[at : at + 4])
                if not 0 < size <= MAX_PACKET:
                    raise BadPacket(f"expected a packet of no more than {MAX_PACKET} bytes, got one of {size}")
                if len(self._buffer) - at < 4 + size:
                    break
                packet = bytes(memoryview(self._buffer)[at + 4 : at + 4 + size])
                at += 4 + size
                yield _answer(packet[0], _Reader(packet))
        finally:
            del self._buffer[:at]


def _answer(kind: int, body: _Reader) -> tuple[int, Answer] | Version:
    number = body.u32()
    match kind:
        case _Kind.VERSION:
            extensions = set()
            while not body.ended:
                extensions.add(body.string())
                body.string()
            return Version(number, frozenset(extensions))
        case _Kind.STATUS:
            # Version 3 added the message and its language, but accept a server that omits them.
            code = body.u32()
            return number, Status(code, "" if body.ended else body.string().decode("utf-8", "backslashreplace"))
        case _Kind.HANDLE:
            return number, Handle(body.string())
        case _Kind.CONTENT:
            return number, Content(body.string())
        case _Kind.NAMES:
            names = []
            for _ in range(body.u32()):
                names.append(body.string())
                body.string()  # The line of `ls -l`.
                body.attributes()
            return number, Names(tuple(names))
        case _Kind.ATTRIBUTES:
            return number, body.attributes()
        case _:
            raise BadPacket(f"expected an answer, got a packet of type {kind}")
