"""Makes one pack of the records of a pull, each checked against its key.

Frames are read from a spool file; all files here have no name, so that whatever ends the process leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from smartserver.records.delta import decompress
from smartserver.records.keys import KeyTable
from smartserver.records.model import Key, Kind, Segment
from smartserver.records.native import twin
from smartserver.records.segment import decode_segment
from smartserver.records.varint import Malformed
from smartserver.vcs.base import WrongContent
from smartserver.vcs.git.objects import METAS
from smartserver.vcs.git.pack import PACK_HEAD, EntryWriter, SpooledRecord, check_id, hash_of, write_all
from smartserver.vcs.git.system import GIT
from smartserver.vcs.signals import held

_BLOCK: Final = 1 << 20

_TYPES: Final = {meta: number for number, meta in METAS.items()}
_KINDS: Final[Sequence[Kind]] = GIT["git sha1"].kinds
"""A segment of git's is read alike whatever its ids are."""


def unnamed_file(folder: str) -> int:
    """A descriptor of a new file without a name, on the same file system as `folder`."""
    flag = getattr(os, "O_TMPFILE", 0)
    if flag:
        with contextlib.suppress(OSError):  # Some file systems have no such files.
            return os.open(folder, os.O_RDWR | flag, 0o600)
    name = os.path.join(folder, f"tmp_spool_{os.getpid()}_{os.urandom(6).hex()}")
    with held():
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.unlink(name)
    return file


@twin
class PackBuilder:
    """One of git's packs, made of segments as they come. What `add` finds wrong may be raised by a later call."""

    def __init__(
        self, width: int, spool: int, entries: int, outside: Callable[[Key], bytes], *, cache: int, level: int
    ) -> None:
        """`width`: bytes of a key. `spool`, `entries`: empty files. `outside`: the text of an object of the repository,
        which may be a base. `cache`: bytes of texts that are kept. `level`: of zlib."""
        self._width = width
        self._spool = spool
        self._size = 0
        """Bytes of frames in the spool file."""
        self._keys = KeyTable()
        self._entries = entries
        self._writer = EntryWriter(spool, entries, width, outside, cache=cache, level=level)

    @property
    def objects(self) -> int:
        """The number of records that came, copies left out."""
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes) and key in self._keys

    def add(self, block: bytes) -> None:
        """Take a segment: each record that did not come before becomes an entry.

        Raises:
            Malformed, LimitExceeded: it is none.
        """
        rows, frames = self._rows(block)
        if rows:
            write_all(self._spool, frames)
            self._size += len(frames)
        for row in rows:
            self._writer.add(row)

    def _rows(self, block: bytes) -> tuple[list[SpooledRecord], memoryview]:
        segment = whole_segment(block)
        at = self._size
        rows = []
        for entry in segment.entries:
            key, length = entry.key, entry.frame_length
            count = len(self._keys)
            if self._keys.number(key) == count:
                kind = type_of(entry.meta, key, self._width)
                rows.append(SpooledRecord(kind, entry.encoding, entry.length, at, length, key, segment.base_of(entry)))
            at += length
        return rows, memoryview(block)[segment.frames_at :]

    def settle(self) -> None:
        """Wait until all that came is made."""
        self._writer.flush()

    def finish(self, out: int) -> tuple[bytes, bytes]:
        """Write the pack to the file `out`; its index, and the hash it ends with."""
        self.settle()
        hashed = hash_of(self._width)()
        for block in self._blocks():
            hashed.update(block)
            write_all(out, block)
        write_all(out, hashed.digest())
        return self._writer.table.index(hashed.digest(), PACK_HEAD.size), hashed.digest()

    def _blocks(self) -> Iterator[bytes]:
        yield PACK_HEAD.pack(b"PACK", 2, len(self._writer.table))
        for at in range(0, self._writer.size, _BLOCK):
            yield os.pread(self._entries, _BLOCK, at)

    def abandon(self) -> None:
        """Drop what is still being made."""


def whole_segment(block: bytes) -> Segment:
    """The segment that a block is."""
    segment = decode_segment(block, 0, _KINDS)
    if segment.length != len(block):
        raise Malformed(0, f"{len(block)} bytes of a segment of {segment.length}")
    return segment


def type_of(meta: bytes, key: Key, width: int) -> int:
    """The number of a record's type."""
    kind = _TYPES.get(meta)
    if kind is None or len(key) != width:
        raise WrongContent(key, "it is not a git object of this repository's format")
    return kind


def check_segment(block: bytes, width: int) -> None:
    """Raise what a segment that the native part refused is refused for, as `PackBuilder.add`."""
    for entry in whole_segment(block).entries:
        type_of(entry.meta, entry.key, width)


def check_record(kind: int, encoding: int, length: int, key: Key, frame: bytes, base: bytes) -> None:
    """The same of a record, on the text of its base."""
    try:
        text = decompress(encoding, frame, length, base)
    except ValueError as error:
        raise WrongContent(key, str(error)) from error
    check_id(kind, key, text)
