"""Trees, files and logs for users without the system's own tool. Every system that has trees answers these selectors of
`Repository.read`; the body of the answer is a content body, described in `doc/spec/wire.md`.

A content body is a byte, `PLAIN` or `COMPRESSED`, and items, which `COMPRESSED` says are in a bulk stream
(`records.bulk`). An item is its length in four bytes, the highest first, and a msgpack array: a `ListedNode`, whose
text follows where texts were asked for, or some `LogEntry`s. The end is a length of 0 and a checksum.
"""

from __future__ import annotations

import enum
import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final, NamedTuple, Protocol, TypeVar
from zlib import crc32

import msgspec

from smartserver.errors import LimitExceeded, Unsupported
from smartserver.records.bulk import read_bulk
from smartserver.records.content import Text
from smartserver.records.hunks import Buffer
from smartserver.records.model import Key, RevisionId
from smartserver.records.varint import Malformed
from smartserver.spans import Part, spans_of

MARK: Final = b"\xc1"
"""Begins a selector of this module: msgpack has no such byte, and no system's own selector begins so."""

PLAIN: Final = b"\0"
COMPRESSED: Final = b"\1"
"""The first byte of a content body."""

MAX_ITEM: Final = 32 << 20
"""Bytes of an item without its text: a revision may name 100,000 paths."""

MAX_MESSAGE: Final = 8 << 20
"""Bytes of a message that a log says. A server has it in memory some six times."""

_LENGTH: Final = struct.Struct(">I")

MAX_REVISION: Final = MAX_ITEM - 1
"""Bytes of one revision of a log: the array around it takes one more."""

MAX_GROUP: Final = 64 << 10
"""Bytes of the revisions in one item of a log; a longer revision has an item of its own."""

_MAX_REVISIONS: Final = 1 << 14
"""Revisions in one item that a reader accepts: each takes at least five bytes."""

_END: Final = struct.Struct(">II")
"""The end of a content body: a length of 0, and the CRC-32 (RFC 1952) of all items and texts. TCP's own checksum finds
one damaged packet in 65,536 sound."""

NO_TEXT: Final = -1
"""The size of an entry whose text does not follow and whose size was not asked for."""

Name = Annotated[str, msgspec.Meta(max_length=4096)]
"""The name of a revision, as the system's tools take it; empty: what a clone checks out."""

Path = Annotated[bytes, msgspec.Meta(max_length=65_536)]
"""Inside a tree, without a slash at either end; empty: the root."""

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class NodeType(enum.IntEnum):
    """The type of a node of a tree."""

    FOLDER = 0
    FILE = 1
    EXECUTABLE = 2
    LINK = 3
    SUBMODULE = 4
    """Another repository's revision, whose id is the text."""


class Node(NamedTuple):
    """A node of a tree; `place`: the kind and key of the record with its text. Without one, `value` is the text."""

    path: bytes
    type: NodeType
    place: tuple[int, Key] | None
    value: bytes = b""


class Header(NamedTuple):
    """The header of a revision. `seconds`: since 1970; `zone`: minutes east of UTC."""

    id: str
    parents: list[str]
    author: str
    seconds: int
    zone: int
    message: str


def message_of(name: str, message: bytes) -> bytes:
    """The message of a revision, which nothing was made of yet."""
    if len(message) > MAX_MESSAGE:
        raise LimitExceeded(f"bytes of the message of {name}", len(message), MAX_MESSAGE)
    return message


class ChangedPath(NamedTuple):
    """A path that differs between a revision's tree and its first parent's; `action`: `A`, `M` or `D`."""

    action: str
    path: bytes


class Contents(Protocol):
    """The trees and headers of one repository, as its system reads them.

    Any method raises ValueError where a record cannot be read, and what `RepositoryView` raises.
    """

    def find(self, name: str) -> RevisionId:
        """The revision of a name.

        Raises:
            NoSuchPart: there is none.
        """

    def nodes(self, revision: RevisionId, path: bytes, *, deep: bool) -> Iterator[Node]:
        """The node at a path, then, of a folder, those in it, with `deep` all below; sorted, a folder before its
        content.

        Raises:
            NoSuchPart: there is nothing at the path.
        """

    def text(self, node: Node) -> Text:
        """The text of a file, the target of a link, the id of a submodule's revision."""

    def size(self, node: Node) -> int:
        """The bytes of that."""

    def header(self, revision: RevisionId) -> Header | None:
        """The header of a revision; None if a log does not show it, as it does not show a tag."""

    def state(self, revision: RevisionId, path: bytes) -> object:
        """Something that is equal for two revisions where what is at a path is equal in both; None: nothing is."""

    def changes(self, revision: RevisionId) -> Iterator[ChangedPath]:
        """The differences of its tree from that of its first parent, sorted by path."""


# -- selectors


class TreeSelector(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=0):
    """The node at a path and, of a folder, those in it; `deep`: all below. `texts`: with their texts; else, with
    `sizes`, with the sizes of them. `keys`: with the keys of their records.
    """

    revision: Name = ""
    path: Path = b""
    deep: bool = False
    texts: bool = False
    sizes: bool = False
    keys: bool = False


class LogSelector(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """The newest `limit` (0: all) of the revisions that `newest` reaches and `oldest` does not (empty: nothing is left
    out), newest first; `path`: only those whose tree differs there from that of each parent. `messages`: what else than
    id, author and date they say; `changes`: the paths that differ from the first parent.
    """

    newest: Name = ""
    oldest: Name = ""
    path: Path = b""
    limit: Count = 0
    messages: bool = True
    changes: bool = False


Selector = TreeSelector | LogSelector
_selectors: Final[msgspec.msgpack.Decoder[Selector]] = msgspec.msgpack.Decoder(Selector)
_encoder: Final = msgspec.msgpack.Encoder()
_encode: Final = _encoder.encode


def encode_selector(selector: Selector) -> bytes:
    """A selector as `Repository.read` takes it."""
    return MARK + _encode(selector)


def decode_selector(selector: bytes) -> Selector | None:
    """The selector that a client sent; None: it is one of the repository's system."""
    if not selector.startswith(MARK):
        return None
    try:
        return _selectors.decode(selector[len(MARK) :])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Unsupported("this selector", str(error)) from None


# -- items


class ListedNode(msgspec.Struct, frozen=True, array_like=True):
    """A node of a tree, its path below that of the selector. `size`: of the text, whether it follows or not; `key`: of
    its record, where keys were asked for and it has one."""

    path: bytes
    type: NodeType
    size: int = NO_TEXT
    key: bytes = b""


class LogEntry(msgspec.Struct, frozen=True, array_like=True):
    """A revision of a log: as `Header`, and the changes, each an action and a path, where they were asked for."""

    id: str
    author: str
    seconds: int
    zone: int
    parents: list[str] = []
    message: str = ""
    changes: list[tuple[str, bytes]] | None = None


Item = TypeVar("Item", ListedNode, list[LogEntry])


class ChangeList:
    """The changes of a revision, encoded one by one: as objects they take ten times the memory."""

    def __init__(self) -> None:
        self.encoded = bytearray()
        self._count = 0

    def add(self, change: ChangedPath) -> None:
        """Another one."""
        _encoder.encode_into((change.action, change.path), self.encoded, -1)
        self._count += 1

    def array(self) -> msgspec.Raw:
        """All of them, as the array that they are in a `LogEntry`."""
        count = self._count
        if count < 1 << 4:
            head = bytes((0x90 | count,))
        elif count < 1 << 16:
            head = b"\xdc" + count.to_bytes(2, "big")
        else:
            head = b"\xdd" + count.to_bytes(4, "big")
        return msgspec.Raw(head + self.encoded)


def encode_revision(entry: LogEntry, changes: ChangeList | None = None) -> bytes:
    """A revision as it is in an item of a log; `changes`: in the place of the entry's own."""
    if changes is None:
        return _encode(entry)
    return _encode((*msgspec.structs.astuple(entry)[:-1], changes.array()))


class _Parts(msgspec.Struct, frozen=True, array_like=True):
    """A `LogEntry`, its parts as they are encoded."""

    id: str
    author: str
    seconds: int
    zone: int
    parents: msgspec.Raw
    message: msgspec.Raw
    changes: msgspec.Raw


_parts = msgspec.msgpack.Decoder(_Parts)
_NO_SAID: Final = b"\x90\xa0"
"""No parents and no message, encoded."""
_NO_CHANGES: Final = b"\xc0"


def split_revision(row: bytes) -> tuple[bytes, bytes, bytes]:
    """A revision as `encode_revision` makes it, in the parts that each kind of log has of it: id, author and date; the
    parents and the message; the changes. All are empty where the row is."""
    if not row:
        return b"", b"", b""
    parts = _parts.decode(row)
    said, changes = bytes(parts.parents) + bytes(parts.message), bytes(parts.changes)
    return row[: len(row) - len(said) - len(changes)], said, changes


def join_revision(head: bytes, said: bytes | None, changes: bytes | None) -> bytes:
    """The revision of such parts; None for those that a log does not have."""
    if not head:
        return b""
    return b"".join((head, _NO_SAID if said is None else said, _NO_CHANGES if changes is None else changes))


def encode_item(item: ListedNode | Sequence[msgspec.Raw]) -> bytes:
    """An item of a content body: a node of a tree, without its text, or some revisions of a log. A client decodes many
    revisions at once in less time."""
    encoded = _encode(item)
    return _LENGTH.pack(len(encoded)) + encoded


def checked_items(items: Iterable[Buffer]) -> Iterator[Buffer]:
    """The items of a content body, given in parts, and its end."""
    crc = 0

    def checked(part: Buffer) -> Buffer:
        nonlocal crc
        crc = crc32(part, crc)
        return part

    yield from map(checked, items)  # The variable of a loop would keep the last part alive.
    yield _END.pack(0, crc)


class ContentStream:
    """Reads a content body as it comes, and holds no more of it than an item and a chunk.

    Raises:
        Malformed: the body is cut off, or holds something else.
        CodedError, MediumError, ProtocolError: as the body.
    """

    def __init__(self, body: Iterable[bytes]) -> None:
        self._chunks = spans_of(Part.LOCAL, "decompress and check", _items(iter(body)))
        self._buffer = b""
        self._at = 0
        self._before = 0
        """Bytes of the items in front of the buffer."""
        self._text = 0
        """Bytes of the last entry's text that were not read yet."""

    def entries(self, *, texts: bool) -> Iterator[ListedNode]:
        """The entries of a tree. `texts`: as in the selector; a text that is not read with `text` is passed over."""
        for entry in self._decoded(_entries):
            self._text = max(entry.size, 0) if texts else 0
            yield entry
            for _ in self.text():
                pass

    def text(self) -> Iterator[memoryview]:
        """The text of the last entry, in parts."""
        while self._text:
            if self._at == len(self._buffer):
                self._next(self._text)
            part = memoryview(self._buffer)[self._at : self._at + self._text]
            self._at += len(part)
            self._text -= len(part)
            yield part

    def log(self) -> Iterator[LogEntry]:
        """The revisions of a log."""
        return itertools.chain.from_iterable(self._decoded(_revisions))

    def _decoded(self, decoder: msgspec.msgpack.Decoder[Item]) -> Iterator[Item]:
        while self._at < len(self._buffer) or self._more():
            (length,) = _LENGTH.unpack(self._take(_LENGTH.size))
            if length > MAX_ITEM:
                raise Malformed(self._offset, f"an item of {length} bytes, expected no more than {MAX_ITEM}")
            encoded = self._take(length)
            try:
                item = decoder.decode(encoded)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
                raise Malformed(self._offset - length, f"an item cannot be read: {error}") from None
            yield item

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end <= len(self._buffer):
            taken = self._buffer[self._at : end]
            self._at = end
            return taken
        # Only what is taken is joined: the chunks are a thousand times as long.
        parts = [self._buffer[self._at :]]
        missing = end - len(self._buffer)
        while missing:
            self._next(missing)
            parts.append(self._buffer[:missing])
            self._at = len(parts[-1])
            missing -= self._at
        return b"".join(parts)

    def _next(self, missing: int) -> None:
        """Go on with the next chunk. `missing`: bytes of the item or text that did not come yet."""
        if not self._more():
            raise Malformed(self._before, f"it ends {missing} bytes before the end of an item")

    def _more(self) -> bool:
        """Go on with the next chunk; whether there is one."""
        chunk = next(self._chunks, b"")
        self._before += len(self._buffer)
        self._buffer, self._at = chunk, 0
        return bool(chunk)

    @property
    def _offset(self) -> int:
        return self._before + self._at


_entries: Final = msgspec.msgpack.Decoder(ListedNode)
_revisions: Final[msgspec.msgpack.Decoder[list[LogEntry]]] = msgspec.msgpack.Decoder(
    Annotated[list[LogEntry], msgspec.Meta(min_length=1, max_length=_MAX_REVISIONS)]
)


def _items(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes of the items of a content body; none where no body came."""
    first = next(chunks, b"")
    if not first:
        return
    form, rest = first[:1], itertools.chain((first[1:],), chunks)
    if form not in (PLAIN, COMPRESSED):
        raise Malformed(0, f"a content body of the form {form[0]}")
    crc = size = 0
    end = b""
    for chunk in read_bulk(rest) if form == COMPRESSED else rest:
        both = end + chunk
        items, end = both[: -_END.size], both[-_END.size :]
        if items:
            crc = crc32(items, crc)
            size += len(items)
            yield items
    if len(end) < _END.size or _END.unpack(end)[0]:
        raise Malformed(size + len(end), "it is cut off")
    if _END.unpack(end)[1] != crc:
        raise Malformed(size, f"the checksum is {_END.unpack(end)[1]:08x}, that of what came {crc:08x}")
