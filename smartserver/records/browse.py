"""Trees, files and logs for users without the system's own tool. Every system with trees answers these selectors of
`Repository.read`; the body of the answer is a content body, described in `doc/spec/wire.md`.

A content body is a byte, `PLAIN` or `COMPRESSED`, and items; after `COMPRESSED` these are in a bulk stream
(`records.bulk`). An item is its length in four bytes, the highest first, and a msgpack array: either a `ListedNode`,
followed by its text if texts were asked for, or some `LogEntry`s. The end is a length of 0 and a checksum.
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
"""The first byte of a selector of this module. No selector of a system begins with it, and msgpack never uses it."""

PLAIN: Final = b"\0"
COMPRESSED: Final = b"\1"
"""The first byte of a content body is `PLAIN` or `COMPRESSED`."""

MAX_ITEM: Final = 32 << 20
"""The most bytes of an item without its text. A revision of a log may name 100,000 changed paths."""

MAX_MESSAGE: Final = 8 << 20
"""The most bytes of a message in a log. A server has some six copies of it in memory."""

_LENGTH: Final = struct.Struct(">I")

MAX_REVISION: Final = MAX_ITEM - 1
"""The most bytes of one revision of a log. The array around it takes one byte more."""

MAX_GROUP: Final = 64 << 10
"""The most bytes of the revisions in one item of a log. A longer revision has an item of its own."""

_MAX_REVISIONS: Final = 1 << 14
"""The most revisions in one item that a reader accepts. Each takes at least five bytes."""

_END: Final = struct.Struct(">II")
"""The end of a content body: a length of 0, and the CRC-32 (RFC 1952) of all items and texts. TCP's own checksum misses
one of 65,536 damaged packets."""

NO_TEXT: Final = -1
"""The value of `ListedNode.size` if neither texts nor sizes were requested."""

Name = Annotated[str, msgspec.Meta(max_length=4096)]
"""The name of a revision, in the syntax of the system's tools. An empty name means the revision that a clone checks
out."""

Path = Annotated[bytes, msgspec.Meta(max_length=65_536)]
"""A path inside a tree, without a slash at either end. The empty path is the root."""

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class NodeType(enum.IntEnum):
    """The type of a node of a tree."""

    FOLDER = 0
    FILE = 1
    EXECUTABLE = 2
    LINK = 3
    SUBMODULE = 4
    """A revision of another repository. Its text is the id of that revision."""


class Node(NamedTuple):
    """A node of a tree. `place`: the kind and key of the record with its text; if it is None, `value` is the text."""

    path: bytes
    type: NodeType
    place: tuple[int, Key] | None
    value: bytes = b""


class Header(NamedTuple):
    """The header of a revision. `seconds`: seconds since the epoch. `zone`: minutes east of UTC."""

    id: str
    parents: list[str]
    author: str
    seconds: int
    zone: int
    message: str


def message_of(name: str, message: bytes) -> bytes:
    """Return an encoded message; raise LimitExceeded if it is longer than `MAX_MESSAGE`. `name`: the revision's
    name."""
    if len(message) > MAX_MESSAGE:
        raise LimitExceeded(f"bytes of the message of {name}", len(message), MAX_MESSAGE)
    return message


class ChangedPath(NamedTuple):
    """A path that differs between the trees of a revision and its first parent. `action`: `A` (added), `M`
    (modified) or `D` (deleted)."""

    action: str
    path: bytes


class Contents(Protocol):
    """The trees and headers of one repository, as its system reads them.

    Any method raises ValueError if a record cannot be read, and the errors of `RepositoryView`.
    """

    def find(self, name: str) -> RevisionId:
        """Find the revision with a name.

        Raises:
            NoSuchPart: the name is unknown.
        """

    def nodes(self, revision: RevisionId, path: bytes, *, deep: bool) -> Iterator[Node]:
        """Yield the node at a path and, if it is a folder, the nodes in it, or with `deep` all nodes below it. They are
        sorted, a folder before its content.

        Raises:
            NoSuchPart: the path does not exist.
        """

    def text(self, node: Node) -> Text:
        """Return the text of a file, the target of a link, or the id of a submodule's revision."""

    def size(self, node: Node) -> int:
        """Return the length in bytes of the `text` of a node."""

    def header(self, revision: RevisionId) -> Header | None:
        """Return the header of a revision; None if a log does not show the revision, such as a tag."""

    def state(self, revision: RevisionId, path: bytes) -> object:
        """Return a value for the content at a path, such as a hash. Two revisions with equal values have equal content
        there. Return None if the path does not exist."""

    def changes(self, revision: RevisionId) -> Iterator[ChangedPath]:
        """Yield the differences of a revision's tree from that of its first parent, sorted by path."""


# -- selectors


class TreeSelector(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=0):
    """Selects the node at a path and, if it is a folder, the nodes in it. `deep`: also the nodes in its subfolders.
    `texts`, `sizes`, `keys`: also the texts of the nodes, the sizes of their texts, the keys of their records.
    """

    revision: Name = ""
    path: Path = b""
    deep: bool = False
    texts: bool = False
    sizes: bool = False
    keys: bool = False


class LogSelector(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """Selects the newest `limit` revisions that `newest` reaches and `oldest` (if not empty) does not, newest first. A
    `limit` of 0 means all. `path`: if not empty, only revisions whose content at the path differs from that of each
    parent. `messages`: also their parents and messages. `changes`: also the paths that differ from the first parent.
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
    """Encode a selector for `Repository.read`."""
    return MARK + _encode(selector)


def decode_selector(selector: bytes) -> Selector | None:
    """Decode the selector in a request. Return None if it is a selector of the repository's system."""
    if not selector.startswith(MARK):
        return None
    try:
        return _selectors.decode(selector[len(MARK) :])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Unsupported(f"this selector ({error})", "those of this server's release") from None


# -- items


class ListedNode(msgspec.Struct, frozen=True, array_like=True):
    """A node of a tree. `path`: its path, relative to the selector's path. `size`: the bytes of its text, even if the
    text does not follow, or `NO_TEXT`. `key`: the key of its record, if keys were requested and the node has one."""

    path: bytes
    type: NodeType
    size: int = NO_TEXT
    key: bytes = b""


class LogEntry(msgspec.Struct, frozen=True, array_like=True):
    """A revision of a log, with the fields of `Header`. `changes`: the action and path of each change; None if changes
    were not requested."""

    id: str
    author: str
    seconds: int
    zone: int
    parents: list[str] = []
    message: str = ""
    changes: list[tuple[str, bytes]] | None = None


Item = TypeVar("Item", ListedNode, list[LogEntry])


class ChangeList:
    """The changes of a revision, each encoded when it is added: as objects they would take ten times the memory."""

    def __init__(self) -> None:
        self.encoded = bytearray()
        self._count = 0

    def add(self, change: ChangedPath) -> None:
        """Add a change."""
        _encoder.encode_into((change.action, change.path), self.encoded, -1)
        self._count += 1

    def array(self) -> msgspec.Raw:
        """Return the encoded array of all changes, as in a `LogEntry`."""
        count = self._count
        if count < 1 << 4:
            head = bytes((0x90 | count,))
        elif count < 1 << 16:
            head = b"\xdc" + count.to_bytes(2, "big")
        else:
            head = b"\xdd" + count.to_bytes(4, "big")
        return msgspec.Raw(head + self.encoded)


def encode_revision(entry: LogEntry, changes: ChangeList | None = None) -> bytes:
    """Encode a revision for an item of a log. `changes`: replaces the entry's own changes."""
    if changes is None:
        return _encode(entry)
    return _encode((*msgspec.structs.astuple(entry)[:-1], changes.array()))


class _Parts(msgspec.Struct, frozen=True, array_like=True):
    """A `LogEntry` whose parents, message and changes stay encoded."""

    id: str
    author: str
    seconds: int
    zone: int
    parents: msgspec.Raw
    message: msgspec.Raw
    changes: msgspec.Raw


_parts = msgspec.msgpack.Decoder(_Parts)
_NO_SAID: Final = b"\x90\xa0"
"""The encoding of an empty list of parents and an empty message."""
_NO_CHANGES: Final = b"\xc0"


def split_revision(row: bytes) -> tuple[bytes, bytes, bytes]:
    """Split an encoded revision into the parts that logs select: id, author and date; parents and message; changes. For
    an empty row, all parts are empty."""
    if not row:
        return b"", b"", b""
    parts = _parts.decode(row)
    said, changes = bytes(parts.parents) + bytes(parts.message), bytes(parts.changes)
    return row[: len(row) - len(said) - len(changes)], said, changes


def join_revision(head: bytes, said: bytes | None, changes: bytes | None) -> bytes:
    """Join the parts of `split_revision` to an encoded revision. `said`, `changes`: None if the log does not select
    this part."""
    if not head:
        return b""
    return b"".join((head, _NO_SAID if said is None else said, _NO_CHANGES if changes is None else changes))


def encode_item(item: ListedNode | Sequence[msgspec.Raw]) -> bytes:
    """Encode an item of a content body: a node of a tree without its text, or several revisions of a log, which a
    client decodes faster together."""
    encoded = _encode(item)
    return _LENGTH.pack(len(encoded)) + encoded


def checked_items(items: Iterable[Buffer]) -> Iterator[Buffer]:
    """Yield all parts of the items of a content body, then the end of the body with their checksum."""
    crc = 0

    def checked(part: Buffer) -> Buffer:
        nonlocal crc
        crc = crc32(part, crc)
        return part

    yield from map(checked, items)  # The variable of a loop would keep the last part alive.
    yield _END.pack(0, crc)


class ContentStream:
    """Reads a content body while it arrives, and holds at most one item and one chunk.

    Raises:
        Malformed: the body is cut off or invalid.
        CodedError, MediumError, ProtocolError: raised by the body.
    """

    def __init__(self, body: Iterable[bytes]) -> None:
        self._chunks = spans_of(Part.LOCAL, "decompress and check", _items(iter(body)))
        self._buffer = b""
        self._at = 0
        self._before = 0
        """The number of bytes before the buffer in the decoded body."""
        self._text = 0
        """The number of bytes of the last entry's text that were not read yet."""

    def entries(self, *, texts: bool) -> Iterator[ListedNode]:
        """Yield the entries of a tree. `texts`: as in the selector. A text that is not read with `text` is skipped."""
        for entry in self._decoded(_entries):
            self._text = max(entry.size, 0) if texts else 0
            yield entry
            for _ in self.text():
                pass

    def text(self) -> Iterator[memoryview]:
        """Yield the text of the last entry, in parts."""
        while self._text:
            if self._at == len(self._buffer):
                self._next(self._text)
            part = memoryview(self._buffer)[self._at : self._at + self._text]
            self._at += len(part)
            self._text -= len(part)
            yield part

    def log(self) -> Iterator[LogEntry]:
        """Yield the revisions of a log."""
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
        # Only the taken bytes are joined: the chunks are a thousand times as long.
        parts = [self._buffer[self._at :]]
        missing = end - len(self._buffer)
        while missing:
            self._next(missing)
            parts.append(self._buffer[:missing])
            self._at = len(parts[-1])
            missing -= self._at
        return b"".join(parts)

    def _next(self, missing: int) -> None:
        """Get the next chunk. `missing`: the bytes of the item or text that did not arrive yet, for the error."""
        if not self._more():
            raise Malformed(self._before, f"it ends {missing} bytes before the end of an item")

    def _more(self) -> bool:
        """Get the next chunk. Return False at the end."""
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
    """Yield the bytes of the items of a content body, and check its end. Yield nothing if there is no body."""
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
