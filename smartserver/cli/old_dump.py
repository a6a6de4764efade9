"""Convert a dump in the format of the previous release into an archive of `dump`, in a temporary file.

dump = magic header revisions* map* end
block = type u8, length u32, content, hash of all bytes before
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final, TypeVar

import msgspec

from smartserver.cli.errors import CommandError
from smartserver.records.model import Kind, Tip
from smartserver.store.archive import ServerDump, dumped
from smartserver.store.state import State

MAGIC: Final = b"smartserver dump 1\n"
MAX_BLOCK: Final = 64 << 20

CONTINUES: Final = "continues an earlier dump: name that dump before it"

T = TypeVar("T")


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    vcs: str
    kinds: tuple[Kind, ...]
    settings: dict[str, bytes]
    refs: dict[bytes, tuple[Tip, ...]]
    maps: dict[str, tuple[str, dict[bytes, bytes]]]
    rests_on: list[bytes]
    segments: int
    size: int


_header = msgspec.msgpack.Decoder(_Header)
_page = msgspec.msgpack.Decoder(tuple[str, dict[bytes, bytes]])


def is_one(file: BinaryIO) -> bool:
    """Tell whether a file begins like a dump of the previous release."""
    found = file.seek(0) == 0 and file.read(len(MAGIC)) == MAGIC
    file.seek(0)
    return found


@contextmanager
def converted(file: BinaryIO, name: str, earlier: State | None) -> Iterator[BinaryIO]:
    """Yield the dump as an archive. `earlier`: the state of the earlier dumps, which this one may continue."""
    read = _Reader(file, name)
    header = read.header
    if header.rests_on and earlier is None:
        raise CommandError(f"{name} {CONTINUES}")
    told = ServerDump(header.vcs, header.kinds, header.settings, header.refs, header.maps)
    base = earlier if header.rests_on else None
    with tempfile.TemporaryFile() as made:
        made.writelines(dumped(told, base, header.segments, header.size, read.segments(), iter(read.pages)))
        made.flush()
        yield made


class _Reader:
    """The reader of a dump. It reads the file once and checks the hash of each block before it uses the block."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name = file, name
        self._digest = hashlib.blake2b(file.read(len(MAGIC)), digest_size=32)
        _, content = self._block(b"H")
        self.header = self._decoded(_header, content)
        self.pages: list[tuple[str, dict[bytes, bytes]]] = []
        """Pages of the maps, which are stored last in the file. The list is complete after `segments` has ended."""

    def segments(self) -> Iterator[bytes]:
        left, kind = self.header.size, b"R"
        while kind != b"E":
            kind, content = self._block(b"RME")
            if kind == b"R":
                left -= len(content)
                yield content
            elif kind == b"M":
                self.pages.append(self._decoded(_page, content))
        if left or self._file.read(1):
            raise self._damaged("its length differs from the one that it states")

    def _block(self, kinds: bytes) -> tuple[bytes, bytes]:
        head = self._file.read(5)
        content = self._file.read(min(int.from_bytes(head[1:], "little"), MAX_BLOCK))
        self._digest.update(head + content)
        check = self._digest.digest()
        if len(head) < 5 or head[:1] not in kinds or self._file.read(len(check)) != check:
            raise self._damaged("a block is damaged or cut off")
        self._digest.update(check)
        return head[:1], content

    def _decoded(self, decoder: msgspec.msgpack.Decoder[T], content: bytes) -> T:
        try:
            return decoder.decode(content)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._damaged(str(error)) from None

    def _damaged(self, why: str) -> CommandError:
        return CommandError(f"{self._name} is damaged before byte {self._file.tell()}: {why}")
