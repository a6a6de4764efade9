"""A record of the log: the effect of one change of a repository, as bytes.

A record is immutable. It has the hash of the record before it, so each record fixes all earlier ones. This module does
no I/O: `log` creates and reads records, `state` computes the state of a repository after a record.

The layout: `HEADER`, then the fields of `Record` in msgpack.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Annotated

import msgspec

from smartserver.errors import CorruptFile, LimitExceeded, Unsupported
from smartserver.records.model import Kind

MAGIC = b"hpss-rec"
VERSION = 1
HEADER = struct.Struct("<8sHH16s")
"""Magic, version, flags (0), BLAKE2b-16 of the payload; the payload follows. The hash comes first, so that the first
bytes of a file tell which record it is."""

MAX_RECORD = 64 << 20
"""The most bytes of a record. A record that creates 500,000 refs takes 35 MB."""

NOTHING = bytes(16)
"""The value of `Record.parent` in record 1, which follows no other record."""

FEATURES: frozenset[str] = frozenset()
"""The features of repositories that this release knows."""

MARK = 2
"""Bytes of a mark: the first bytes of a record's hash, by which a client notices that its version number now belongs to
another record. Two bytes miss one such case in 65,536. A mark is in every request and reply: with four bytes, a small
push sent more bytes than another tool's push."""


Bytes16 = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Natural = Annotated[int, msgspec.Meta(ge=0)]


class PackEntry(msgspec.Struct, frozen=True, array_like=True):
    """A pack and its index, the files `packs/NAME.pack` and `packs/NAME.idx`, with the name in hex. Lengths are in
    bytes, hashes are BLAKE2b-16. The entry of a dump has no index and no count of records: these fields are 0."""

    name: Bytes16
    length: Natural
    hash: Bytes16
    index_length: Natural
    index_hash: Bytes16
    segments: Natural
    records: Natural

    @property
    def has_index(self) -> bool:
        """True if the pack has an index."""
        return self.index_length > 0


class Change(msgspec.Struct, frozen=True, array_like=True):
    """The change of one key of a table, from `old` to `new`. None means that the key is absent."""

    table: str
    key: bytes
    old: bytes | None
    new: bytes | None


class Beginning(msgspec.Struct, frozen=True, array_like=True):
    """The start of a repository, which was created, or recovered under a new incarnation."""

    incarnation: Bytes16
    vcs: str
    kinds: tuple[Kind, ...]
    complete: bool = True
    """True if the earlier entries have every request that was carried out. After a recovery some may be missing."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """The effect of one request, and the answer to it."""

    request: bytes
    user: str
    outcomes: bytes
    changes: tuple[Change, ...] = ()
    pack: PackEntry | None = None
    """The pack of the revisions that the request stored."""
    begins: Beginning | None = None
    deletes: bool = False
    """True if the request deletes the repository. Only the log remains."""
    options: tuple[str, ...] = ()
    """The push options of the request, for hooks and receivers of changes. Older releases leave out this field."""


class Join(msgspec.Struct, frozen=True, array_like=True):
    """Neighbouring packs, in order, that are replaced by one pack."""

    packs: tuple[Bytes16, ...]
    into: PackEntry


class Record(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The effect of one change. Later releases append fields; a feature marks a change that a reader must not ignore.

    `parent`: the hash of record `number` - 1. `features`: the features that the repository gains with this record.
    `time`: milliseconds since the epoch, by the writer's clock. `random`: bytes that make record 1 unique. `dropped`:
    packs that no state names and that will be deleted. `forgotten`: dropped packs that were deleted.
    """

    number: Natural
    parent: Bytes16
    features: tuple[str, ...] = ()
    time: int
    entries: tuple[Entry, ...] = ()
    joins: tuple[Join, ...] = ()
    dropped: tuple[Bytes16, ...] = ()
    forgotten: tuple[Bytes16, ...] = ()
    random: bytes = b""


class _Head(msgspec.Struct, array_like=True):
    """The first fields of every record and checkpoint head in all releases, from which this release gets the unknown
    features of a later one. `hash`: in a record, the hash of the record before it."""

    number: Natural
    hash: Bytes16
    features: tuple[str, ...]


_encode = msgspec.msgpack.Encoder().encode
_RECORD = msgspec.msgpack.Decoder(Record)
_HEAD = msgspec.msgpack.Decoder(_Head)


def record_path(number: int) -> str:
    """Return the path of a record in the repository."""
    return f"log/{number:010}"


def encode_record(record: Record) -> bytes:
    """Encode a record, with its header and hash."""
    payload = _encode(record)
    size = HEADER.size + len(payload)
    if size > MAX_RECORD:
        raise LimitExceeded("bytes of a change of the repository", size, MAX_RECORD)
    return HEADER.pack(MAGIC, VERSION, 0, _hash(payload)) + payload


def hash_of(content: bytes) -> bytes:
    """Return the hash in the header of a record. The content is not checked: if it is not a record, the result has no
    meaning."""
    return content[HEADER.size - 16 : HEADER.size]


def is_record(content: bytes | None, record_hash: bytes) -> bool:
    """Tell whether the content is the whole record with this hash."""
    return content is not None and hash_of(content) == record_hash == _hash(memoryview(content)[HEADER.size :])


def numbers_of(names: Iterable[str] | None) -> list[int]:
    """Return the numbers of the records among the names in the folder of records. `names` is None if the folder is
    missing."""
    return [int(name) for name in names or () if name.isdecimal() and record_path(int(name)) == f"log/{name}"]


def decode_record(content: bytes, path: str) -> Record:
    """Decode the record in a file.

    Raises:
        CorruptFile: the content is damaged, or is not a record.
    """
    if len(content) < HEADER.size:
        raise CorruptFile(path, 0, f"{len(content)} bytes, too short for a record")
    magic, version, flags, check = HEADER.unpack_from(content)
    if (magic, version, flags) != (MAGIC, VERSION, 0):
        raise CorruptFile(path, 0, f"begins with {content[:12]!r}: no record this release reads")
    payload = memoryview(content)[HEADER.size :]
    if _hash(payload) != check:
        raise CorruptFile(path, HEADER.size, "the content does not match its check")
    try:
        record = _RECORD.decode(payload)
    except msgspec.DecodeError as error:
        check_head(payload)
        raise CorruptFile(path, HEADER.size, str(error)) from error
    check_features(record.features)
    return record


def check_head(payload: bytes | memoryview) -> None:
    """Raise Unsupported if a payload that cannot be decoded names an unknown feature: a feature may change the fields
    after `features`."""
    with contextlib.suppress(msgspec.DecodeError):
        check_features(_HEAD.decode(payload).features)


def check_features(features: Sequence[str]) -> None:
    """Raise Unsupported if this release does not know one of the features."""
    for feature in features:
        if feature not in FEATURES:
            raise Unsupported(f"the repository feature {feature!r}", ", ".join(sorted(FEATURES)) or "none")


def _hash(payload: bytes | memoryview) -> bytes:
    return blake2b(payload, digest_size=16).digest()
