"""`Blocks`: the bytes of an index, read in blocks by position; each block is proved before it is used.

A process that maps a file into memory is killed if another program truncates the file, as `cp` of a backup does. So
only the needed blocks of an index are read, 16 KiB each. Blocks are kept in one cache, which is bounded in bytes and
shared by the process. The body is followed by the hash of each block, and by the hash of these hashes, which is also in
the log. So opening an index reads its header and its hashes, and a block is proved when it is read. A damaged block may
be found long after the index was opened. Then the index is rebuilt from its pack, and the reader gets the right bytes:
the layout is the same.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator

from smartserver.errors import CorruptFile
from smartserver.meters import BLOCK_CACHE
from smartserver.store.caches import SharedCache
from smartserver.store.pack import TRAILER
from transports.base import BytesFile, ReadFile

BLOCK = 16 << 10
"""Bytes of a block in the format. Reading and hashing a block takes 20 microseconds, and a lookup needs about four
blocks."""
PIECE = 64 * BLOCK
"""The size in bytes of the pieces in which an index is written."""

CACHED_BYTES = 32 << 20
CACHED = SharedCache[bytes](CACHED_BYTES, len, BLOCK_CACHE)
"""The blocks of all indexes of the process: room for 500,000 records. A key is the file's hash and a block's number."""

Remake = Callable[[], bytes]
"""A function that returns the whole index, rebuilt from its pack."""


def seal(body: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a body and the hashes of its blocks, in pieces of `PIECE` bytes. The last piece has the final hash at its
    end."""
    checks = bytearray()
    rest = bytearray()
    for piece in body:
        rest += piece
        while len(rest) > PIECE:
            whole = bytes(rest[:PIECE])
            del rest[:PIECE]
            checks += _checks(whole)
            yield whole
    checks += _checks(bytes(rest))
    yield b"".join((rest, checks, _hash(checks)))


def _checks(blocks: bytes) -> bytes:
    """Return the hashes of the blocks in some bytes, joined."""
    return b"".join([_hash(blocks[at : at + BLOCK]) for at in range(0, len(blocks), BLOCK)])


def _hash(content: bytes | bytearray) -> bytes:
    return hashlib.blake2b(content, digest_size=TRAILER).digest()


class Blocks:
    """The body of an index file. Several threads may use it at once."""

    def __init__(self, file: ReadFile | bytes, name: str) -> None:
        """`file`: the file open for reading, or its content. `name`: its path, for messages."""
        self.name = name
        self.remade: bytes | None = None
        """The whole file as rebuilt from the pack; None if that was not necessary."""
        self.remake: Remake | None = None
        """The function that rebuilds the file. If it is None, a damaged block is an error."""
        self._remaking: set[int] = set()
        """The threads that are rebuilding the file. Their own reads must not start another rebuild."""
        self._file = BytesFile(file) if isinstance(file, bytes) else file
        self._content: bytes | None = None
        """The body, if it is in memory."""
        self.size = self._file.size()
        """The size of the file in bytes."""
        count = -(-(self.size - TRAILER) // (BLOCK + TRAILER))
        self.length = self.size - TRAILER * (count + 1)
        """The size of the body in bytes."""
        if count < 1 or self.length <= BLOCK * (count - 1):
            raise CorruptFile(name, self.size, f"{self.size} bytes, which is not the size of an index")
        whole = count == 1 or isinstance(file, bytes)
        content = self._file.read_at(0, self.size) if whole else b""
        tail = content[self.length :] if whole else self._file.read_at(self.length, self.size - self.length)
        self._checks = tail[:-TRAILER]
        self.hash = tail[-TRAILER:]
        """The hash at the end, which is also in the log."""
        if len(tail) != self.size - self.length or _hash(self._checks) != self.hash:
            raise CorruptFile(name, self.size - TRAILER, "the content of the index does not match the hash at its end")
        self._keys = [self.hash + number.to_bytes(4, "little") for number in range(0 if whole else count)]
        """The keys of the blocks in the cache."""
        if whole:
            for number in range(count):
                self._prove(number, content[number * BLOCK : min((number + 1) * BLOCK, self.length)])
            self._content = content[: self.length]

    @property
    def descriptor(self) -> int | None:
        """The descriptor of the file; None if it is not local, or was rebuilt."""
        return None if self.remade is not None else self._file.descriptor

    def read(self, at: int, size: int) -> bytes:
        """Read a range of the body."""
        if not 0 <= at <= at + size <= self.length:
            raise CorruptFile(
                self.name, at, f"{size} bytes are outside of the {self.length} that the index has before its hashes"
            )
        content = self._content
        if content is not None:
            return content[at : at + size]
        if not size:  # The range may be at the very end, where no block begins.
            return b""
        number, start = divmod(at, BLOCK)
        block = CACHED.get(self._keys[number]) or self._fetch(number)
        if start + size <= len(block):
            return block[start : start + size]
        pieces = [block[start:]]
        size -= len(pieces[0])
        while size > 0:
            number += 1
            block = CACHED.get(self._keys[number]) or self._fetch(number)
            pieces.append(block[:size])
            size -= len(pieces[-1])
        return b"".join(pieces)

    def check(self) -> None:
        """Check every block of the file. A damaged file is rebuilt (`remade`)."""
        for number in range(len(self._checks) // TRAILER):
            if self._content is None:
                self._fetch(number)

    def _fetch(self, number: int) -> bytes:
        """Read a block from the file and cache it. If the block is damaged, rebuild the file and return the rebuilt
        block."""
        at = number * BLOCK
        size = min(BLOCK, self.length - at)
        if self._content is None:
            block = self._file.read_at(at, size)
            try:
                self._prove(number, block)
            except CorruptFile:
                self._make_again()
            else:
                CACHED.put(self._keys[number], block)
                return block
        assert self._content is not None  # The file was rebuilt.
        return self._content[at : at + size]

    def _prove(self, number: int, block: bytes) -> None:
        if _hash(block) != self._checks[number * TRAILER : (number + 1) * TRAILER]:
            raise CorruptFile(self.name, number * BLOCK, f"block {number} does not match its hash")

    def _make_again(self) -> None:
        """Rebuild the file from the pack. Several threads may do so at once: they do not wait for each other, because
        two damaged indexes may need each other."""
        here = threading.get_ident()
        if self.remake is None or here in self._remaking:
            raise CorruptFile(self.name, 0, "the index cannot be rebuilt from its pack")
        self._remaking.add(here)
        try:
            made = Blocks(self.remake(), self.name)
        finally:
            self._remaking.discard(here)
        if made.length != self.length:
            raise CorruptFile(self.name, 0, "the index does not belong to its pack")
        self.remade, self._content = made._file.read_at(0, made.size), made._content
