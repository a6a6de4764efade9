"""Makes one pack of the records of a pull, each checked against its key.

Frames are read from a spool file. All files here have no name, so that a process that ends early leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from smartserver.records.cache import Cache
from smartserver.records.delta import decompress
from smartserver.records.model import Key, Kind, Segment
from smartserver.records.native import twin
from smartserver.records.segment import STORED, decode_segment
from smartserver.records.varint import Malformed
from smartserver.vcs.base import WrongContent
from smartserver.vcs.git.delta import delta
from smartserver.vcs.git.objects import COMMIT, METAS
from smartserver.vcs.git.pack import OFS_DELTA, PACK_HEAD, check_id, entry_head, hash_of, index, offset_back
from smartserver.vcs.git.system import GIT
from smartserver.vcs.signals import held

_BLOCK: Final = 1 << 20

_TYPES: Final = {meta: number for number, meta in METAS.items()}
_KINDS: Final[Sequence[Kind]] = GIT["git sha1"].kinds
"""The kinds of records by which a segment is decoded. They are the same for both object formats."""


def unnamed_file(folder: str) -> int:
    """Open a new file without a name on the file system of `folder`, and return its descriptor."""
    flag = getattr(os, "O_TMPFILE", 0)
    if flag:
        with contextlib.suppress(OSError):  # Some file systems have no such files.
            return os.open(folder, os.O_RDWR | flag, 0o600)
    name = os.path.join(folder, f"tmp_spool_{os.getpid()}_{os.urandom(6).hex()}")
    with held():
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.unlink(name)
    return file


class _Record(NamedTuple):
    """The header of a received record, and the places of its frame and of its entry in the pack."""

    kind: int = 0
    """Git's type number; 0 if the object is the base of a received record, but was not received itself."""
    encoding: int = STORED
    length: int = 0
    at: int = 0
    """The place of the record's frame in the spool file."""
    frame_length: int = 0
    base: Key = b""
    is_outside: bool = False
    """True if the record was used as a base before it was received. Its text is then read from the repository, because
    the base of the received record may depend on it."""
    place: int = 0
    """The place of the record's entry in the pack."""
    check: int = 0
    """The CRC-32 of the record's entry."""


@twin
class PackBuilder:
    """Makes a git pack of segments as they are received. An error in a segment may be raised by a later call than its
    `add`.

    A record may become a delta of an earlier record, but never of a record outside the pack, so the pack is complete. A
    base of another type is used for decoding only, because in a pack a delta has the type of its base.
    """

    def __init__(
        self, width: int, spool: int, entries: int, outside: Callable[[Key], bytes], *, cache: int, level: int
    ) -> None:
        """`width`: the bytes of a key. `spool`, `entries`: descriptors of empty files. `outside`: returns the text of
        an object of the repository, which may be a base. `cache`: the most bytes of cached texts. `level`: of zlib."""
        self._width = width
        self._spool = spool
        self._spooled = 0
        """The number of bytes in the spool file."""
        self._entries = entries
        self._written = 0
        """The number of bytes in the file of entries."""
        self._outside = outside
        self._level = level
        self._records: dict[Key, _Record] = {}
        self._texts = Cache[Key, bytes](cache, len)
        self.objects = 0
        """The number of different records that were received."""

    def __contains__(self, key: object) -> bool:
        found = self._records.get(key) if isinstance(key, bytes) else None
        return found is not None and found.kind != 0

    def add(self, block: bytes) -> None:
        """Add a segment: each record that was not received before becomes an entry.

        Raises:
            Malformed, LimitExceeded: the block is no segment.
        """
        segment = whole_segment(block)
        at = self._spooled
        write_all(self._spool, memoryview(block)[segment.frames_at :])
        self._spooled += len(block) - segment.frames_at
        for entry in segment.entries:
            key, length = entry.key, entry.frame_length
            if key not in self:
                kind = type_of(entry.meta, key, self._width)
                base, is_outside = segment.base_of(entry), key in self._records
                self._make(key, _Record(kind, entry.encoding, entry.length, at, length, base, is_outside))
                self.objects += 1
            at += length

    def _make(self, key: Key, record: _Record) -> None:
        """Check a record and write its entry."""
        base = self._text(record.base) if record.base else b""
        text = self._decode(key, record, base)
        check_id(record.kind, key, text)
        self._texts.put(key, text)
        place, check = self._written, 0
        for piece in self._entry(record, text, base):
            write_all(self._entries, piece)
            check = zlib.crc32(piece, check)
            self._written += len(piece)
        self._records[key] = record._replace(place=place, check=check)

    def _entry(self, record: _Record, text: bytes, base: bytes) -> Iterator[bytes]:
        """Yield the entry of a record in pieces, so that the compressed form of a large text is never whole in
        memory."""
        on = self._records[record.base] if record.base else _Record()
        # Commits are written whole: deltas would save a tenth of their bytes, but double the deltas to make and to
        # resolve.
        if on.kind == record.kind != COMMIT:
            changes = delta(base, text)
            if len(changes) * 10 < len(text) * 7:
                head = entry_head(OFS_DELTA, len(changes)) + offset_back(self._written - on.place)
                yield head + zlib.compress(changes, self._level)
                return
        # zlib does not shrink a text that zstd stored as it is; on a large one it would take seconds to find out.
        is_hard = record.encoding == STORED and len(text) > _BLOCK
        packer = zlib.compressobj(0 if is_hard else self._level)
        yield entry_head(record.kind, len(text))
        for at in range(0, len(text), _BLOCK):
            yield packer.compress(memoryview(text)[at : at + _BLOCK])
        yield packer.flush()

    def _text(self, wanted: Key) -> bytes:
        """Return the text of a base. Decode it again if it was evicted from the cache."""
        key, chain = wanted, list[Key]()
        while (text := self._texts.get(key)) is None:
            record = self._records.setdefault(key, _Record())
            if record.kind == 0 or record.is_outside:
                text = self._outside(key)
                self._texts.put(key, text)
                break
            chain.append(key)
            if not record.base:
                text = b""
                break
            key = record.base
        for each in reversed(chain):
            text = self._decode(each, self._records[each], text)
        self._texts.put(wanted, text)  # Texts in between are not cached: they would drive out needed ones.
        return text

    def _decode(self, key: Key, record: _Record, base: bytes) -> bytes:
        frame = os.pread(self._spool, record.frame_length, record.at)
        try:
            return decompress(record.encoding, frame, record.length, base)
        except ValueError as error:
            raise WrongContent(key, str(error)) from error

    def settle(self) -> None:
        """Wait until all records that were received are written. Raises the errors of `add`."""

    def finish(self, out: int) -> tuple[bytes, bytes]:
        """Write the pack to the file `out`. Return its index and its hash. Raises the errors of `add`."""
        hashed = hash_of(self._width)()
        for block in self._blocks():
            hashed.update(block)
            write_all(out, block)
        write_all(out, hashed.digest())
        came = [(key, each) for key, each in sorted(self._records.items()) if each.kind]
        made = [(key, each.check, each.place + PACK_HEAD.size) for key, each in came]
        return index(made, hashed.digest()), hashed.digest()

    def _blocks(self) -> Iterator[bytes]:
        yield PACK_HEAD.pack(b"PACK", 2, self.objects)
        for at in range(0, self._written, _BLOCK):
            yield os.pread(self._entries, _BLOCK, at)

    def abandon(self) -> None:
        """Stop work that is still in progress."""


def write_all(file: int, block: bytes | memoryview) -> None:
    """Write a whole block to a file descriptor."""
    view = memoryview(block)
    while view:
        view = view[os.write(file, view) :]


def whole_segment(block: bytes) -> Segment:
    """Decode a block that is one whole segment."""
    segment = decode_segment(block, 0, _KINDS)
    if segment.length != len(block):
        raise Malformed(0, f"{len(block)} bytes of a segment of {segment.length}")
    return segment


def type_of(meta: bytes, key: Key, width: int) -> int:
    """Return git's type number of a record. Raises WrongContent if it is no git object with a key of `width` bytes."""
    kind = _TYPES.get(meta)
    if kind is None or len(key) != width:
        raise WrongContent(key, "it is not a git object of this repository's format")
    return kind


def check_segment(block: bytes, width: int) -> None:
    """Raise the error of a segment that the native part refused, as `PackBuilder.add` would."""
    for entry in whole_segment(block).entries:
        type_of(entry.meta, entry.key, width)


def check_record(kind: int, encoding: int, length: int, key: Key, frame: bytes, base: bytes) -> None:
    """Raise the error of a record that the native part refused. `base`: the text of its base."""
    try:
        text = decompress(encoding, frame, length, base)
    except ValueError as error:
        raise WrongContent(key, str(error)) from error
    check_id(kind, key, text)
