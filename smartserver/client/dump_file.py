"""The bytes of a dump: a repository, or what it gained since another dump, as one file (doc/spec/dump.md).

A dump is a line that names the format, and blocks. Each block ends with the hash of all bytes before, so a reader uses
no byte that it has not checked, can name the place of any damage, and detects a missing end. Writer and reader hold
the header, one block, and (the reader) the entries of the maps that come last.

    dump = magic header revisions* map* end
    block = type u8, length u32, content, hash
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Annotated, BinaryIO, Final, TypeVar

import msgspec

from smartserver.client.body import of_source
from smartserver.client.copy import CannotCopy, CopySource
from smartserver.errors import LimitExceeded
from smartserver.records.model import Kind, RefValue, RevisionId, Tip
from smartserver.records.system import system_of
from smartserver.verbs.map_update import MapKind
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.limits import MAX_HAVES

MAGIC: Final = b"smartserver dump 1\n"

HASH_BYTES: Final = 32

HEADER, REVISIONS, MAP, END = b"H", b"R", b"M", b"E"
"""Types of blocks, in the order in which they come."""

PIECE: Final = 64 * 1024
"""Bytes of revisions in a block, the last one apart: its head and hash are 0.06 % of it."""

MAX_BLOCK: Final = 64 << 20
"""Bytes of a block. The longest is a header, with all refs and maps: those of a reply, which has no more either."""

READ: Final = 1 << 20
"""Bytes that are read at once."""

ENDS: Final = "it ends here, before its last block"

_HEAD: Final = 5
"""Bytes of a block's type and length."""

T = TypeVar("T")


class BadDump(CannotCopy):
    """A dump is damaged, or it is none."""


class DumpHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a dump says of the repository."""

    vcs: str
    kinds: list[Kind]
    settings: dict[str, bytes]
    refs: dict[bytes, Annotated[tuple[Tip, ...], msgspec.Meta(min_length=1)]]
    maps: dict[str, tuple[MapKind, dict[bytes, bytes]]]
    """Without those that are not told with the refs (`System.untold`)."""
    rests_on: Annotated[list[RevisionId], msgspec.Meta(max_length=MAX_HAVES)]
    """Revisions that a target must have: the dump lacks them and their ancestors."""
    segments: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
    size: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    """Bytes of the segments."""

    @property
    def copied(self) -> CopySource:
        """The repository as the source of a copy."""
        refs: Mapping[bytes, RefValue] = self.refs
        return CopySource(self.vcs, self.settings, refs, self.maps)


_Entries = tuple[str, dict[bytes, bytes]]

_encode = msgspec.msgpack.Encoder().encode
_header = msgspec.msgpack.Decoder(DumpHeader)
_map = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
_entries = msgspec.msgpack.Decoder(dict[bytes, bytes])


def write_dump(header: DumpHeader, body: Iterable[bytes], maps: Iterable[_Entries]) -> Iterator[bytes]:
    """The pieces of a dump. `body`: the segments, cut anywhere. `maps`: pages of the maps that come last.

    Raises:
        LimitExceeded: the header is too long.
        RemoteProtocolError: the body is not as long as the header says.
    """
    digest = hashlib.blake2b(MAGIC, digest_size=HASH_BYTES)

    def block(kind: bytes, content: bytes) -> bytes:
        if len(content) > MAX_BLOCK:
            raise LimitExceeded("bytes of refs and maps in a dump", len(content), MAX_BLOCK)
        whole = kind + len(content).to_bytes(_HEAD - 1, "little") + content
        digest.update(whole)
        check = digest.digest()
        digest.update(check)
        return whole + check

    yield MAGIC + block(HEADER, _encode(header))
    size, gathered = 0, bytearray()
    for chunk in body:
        size += len(chunk)
        gathered += chunk
        while len(gathered) >= PIECE:
            yield block(REVISIONS, bytes(gathered[:PIECE]))
            del gathered[:PIECE]
    if size != header.size:
        raise RemoteProtocolError(f"expected {header.size} bytes of revisions, got {size}")
    if gathered:
        yield block(REVISIONS, bytes(gathered))
    for entries in maps:
        yield block(MAP, _encode(entries))
    yield block(END, b"")


class DumpReader:
    """Reads a dump from a file; iterating over it gives its segments, cut anywhere.

    The iteration ends after the last block was checked; `untold` is complete then.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        """Read the header. `name`: what the user calls the file.

        Raises:
            BadDump: it is damaged, or no dump.
            SourceFailed: this release lacks its version-control system.
        """
        self._file = file
        self._zero = file.tell() if file.seekable() else 0
        """Where the dump begins in the file."""
        self._name = name
        self._at = 0
        self._digest = hashlib.blake2b(digest_size=HASH_BYTES)
        first = self._read(len(MAGIC))
        if not MAGIC.startswith(first):
            raise BadDump(f"{name} is no dump of smartserver, or one of another version")
        if first != MAGIC:
            raise self.damaged(len(first), ENDS)
        self._at = len(MAGIC)
        self._digest.update(MAGIC)
        at, kind, content = self._block()
        if kind != HEADER:
            raise self.damaged(at, f"a block of type {kind!r} instead of the header")
        self.header = self._decode(_header, at, content)
        with of_source():
            system = system_of(self.header.vcs)
        self.untold: dict[str, dict[bytes, bytes]] = {name: {} for name in system.untold}
        """The entries of maps that come last."""
        self.content_at = 0
        """Where the content of the last block begins in the dump."""
        self._begin = self._at, self._digest.copy()
        """Where the segments begin, and the hash up to there."""
        self._used = False

    def __iter__(self) -> Iterator[bytes]:
        """The segments, from the first. A file can be read several times, a pipe once.

        Raises:
            BadDump: it is damaged, or cannot be read again.
        """
        if self._used:
            self._rewind()
        self._used = True
        for entries in self.untold.values():
            entries.clear()
        left, last = self.header.size, HEADER
        while last != END:
            at, kind, content = self._block()
            if kind not in _AFTER[last]:
                raise self.damaged(at, f"a block of type {kind!r} after one of type {last!r}")
            if kind != REVISIONS and left:
                raise self.damaged(at, f"{left} bytes of revisions are missing")
            if kind == REVISIONS:
                left -= len(content)
                if left < 0:
                    raise self.damaged(at, f"{-left} bytes of revisions more than the header says")
                yield content
            elif kind == MAP:
                self._add_entries(at, content)
            elif content:
                raise self.damaged(at, "the last block is not empty")
            last = kind
        if self._file.read(1):
            raise self.damaged(self._at, "there is more after the end")

    @property
    def is_repeatable(self) -> bool:
        """Whether it can be read again."""
        return self._file.seekable()

    def read_at(self, at: int, size: int) -> bytes:
        """Bytes of a dump that was read, and can be again; they are not checked a second time.

        Raises:
            BadDump: it became shorter.
        """
        self._file.seek(self._zero + at)
        found = self._read(size)
        if len(found) < size:
            raise self.damaged(at + len(found), "it became shorter while it was read")
        return found

    def check(self) -> None:
        """Read it to its end.

        Raises:
            BadDump: it is damaged.
        """
        for _ in self:
            pass

    def _add_entries(self, at: int, content: bytes) -> None:
        name, encoded = self._decode(_map, at, content)
        entries = self._decode(_entries, at, encoded)
        known = self.untold.get(name)
        if known is None:
            raise self.damaged(at, f"the map {name!r} is not one that comes last")
        last = [next(reversed(known))] if known else []
        # A key that is twice in one block is once in a dictionary.
        if len(entries) < _length_of_map(encoded) or any(one >= two for one, two in pairwise([*last, *entries])):
            raise self.damaged(at, f"the keys of the map {name!r} are not in ascending order")
        known |= entries

    def _rewind(self) -> None:
        if not self.is_repeatable:
            why = f"{self._name} cannot be read a second time"
            raise BadDump(f"the upload had to begin again, and {why}: load from a file")
        self._file.seek(self._zero + self._begin[0])
        self._at, digest = self._begin
        self._digest = digest.copy()

    def _block(self) -> tuple[int, bytes, bytes]:
        """Where the next block begins, its type and its content, checked."""
        at = self._at
        head = self._take(_HEAD)
        length = int.from_bytes(head[1:], "little")
        if length > MAX_BLOCK:
            raise self.damaged(at, f"a block of {length} bytes, expected no more than {MAX_BLOCK}")
        self.content_at = self._at
        content = self._take(length)
        self._digest.update(head)
        self._digest.update(content)
        check = self._digest.digest()
        if self._take(HASH_BYTES) != check:
            raise self.damaged(at, "the hash after this block is not that of what precedes it")
        self._digest.update(check)
        return at, head[:1], content

    def _take(self, size: int) -> bytes:
        taken = self._read(size)
        if len(taken) < size:
            raise self.damaged(self._at + len(taken), ENDS)
        self._at += size
        return taken

    def _read(self, size: int) -> bytes:
        """The next bytes, fewer at the end. Memory is allocated for bytes that came, not for a length."""
        taken = bytearray()
        while len(taken) < size and (part := self._file.read(min(size - len(taken), READ))):
            taken += part
        return bytes(taken)

    def _decode(self, decoder: msgspec.msgpack.Decoder[T], at: int, content: bytes | msgspec.Raw) -> T:
        try:
            return decoder.decode(content)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as wrong:
            raise self.damaged(at, f"a block that cannot be read: {wrong}") from None

    def damaged(self, at: int, why: str) -> BadDump:
        """The error that says so, of the byte `at`."""
        return BadDump(f"{self._name} is damaged at byte {at}: {why}")


def _length_of_map(encoded: msgspec.Raw) -> int:
    """How many pairs the head of a map in MessagePack announces."""
    head = bytes(memoryview(encoded)[:5])
    if head[0] & 0xF0 == 0x80:
        return head[0] & 0x0F
    return int.from_bytes(head[1:3] if head[0] == 0xDE else head[1:], "big")


_AFTER: Final = {
    HEADER: (REVISIONS, MAP, END),
    REVISIONS: (REVISIONS, MAP, END),
    MAP: (MAP, END),
}
"""Which blocks may follow one."""
