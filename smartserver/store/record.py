"""A record of the log: what one change of a repository did, as bytes.

A record is immutable. It names the record before it by that one's hash, so each record fixes all that came before. It
does I/O nowhere; `log` creates and reads records, `state` says what a repository is after one.

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
"""Bytes of a record. One that makes 500,000 refs takes 35 MB."""

NOTHING = bytes(16)
"""The hash that record 1 names as that of the record before it."""

FEATURES: frozenset[str] = frozenset()
"""Features of repositories that this release knows."""

MARK = 2
"""Bytes of a mark: one client in 65,536 does not notice another line. It is in every request and reply: with four bytes
a small push had more than another tool's."""


Bytes16 = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Natural = Annotated[int, msgspec.Meta(ge=0)]


class PackEntry(msgspec.Struct, frozen=True, array_like=True):
    """A pack and its index: `packs/` and the name in hex, `.pack` and `.idx`; lengths in bytes, BLAKE2b-16 hashes. That
    of a dump has no index, whose length and hash are 0; then its records are not counted."""

    name: Bytes16
    length: Natural
    hash: Bytes16
    index_length: Natural
    index_hash: Bytes16
    segments: Natural
    records: Natural

    @property
    def has_index(self) -> bool:
        """True if there is an index of it."""
        return self.index_length > 0


class Change(msgspec.Struct, frozen=True, array_like=True):
    """One key of a table, before and after; None where it is absent."""

    table: str
    key: bytes
    old: bytes | None
    new: bytes | None


class Beginning(msgspec.Struct, frozen=True, array_like=True):
    """A repository begins here: it was created, or recovered under a new incarnation."""

    incarnation: Bytes16
    vcs: str
    kinds: tuple[Kind, ...]
    complete: bool = True
    """True if the entries tell every request that was carried out here before. After a recovery they may not."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """The effect of one request, and the answer to it."""

    request: bytes
    user: str
    outcomes: bytes
    changes: tuple[Change, ...] = ()
    pack: PackEntry | None = None
    """The pack that came with it."""
    begins: Beginning | None = None
    deletes: bool = False
    """True if the repository is deleted: nothing of it is left but its entries."""
    options: tuple[str, ...] = ()
    """The push options of the request: text for those who are told of it. Older releases leave it out."""


class Join(msgspec.Struct, frozen=True, array_like=True):
    """Neighbouring packs, in order, that one pack replaces."""

    packs: tuple[Bytes16, ...]
    into: PackEntry


class Record(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The effect of one change. Later releases append fields; a feature is what a reader must not overlook.

    `parent`: the hash of record `number` - 1. `features`: those that the repository has from here on, besides those
    before. `time`: milliseconds since the epoch, by the writer's clock. `random`: makes record 1 one of its own.
    `dropped`: files in `packs` that no state names. `forgotten`: dropped ones that are deleted by now.
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
    """The begin of every record and every head of a checkpoint for ever, so that a foreign one can be refused by the
    name of its feature. `hash`: in a record that of the record before it."""

    number: Natural
    hash: Bytes16
    features: tuple[str, ...]


_encode = msgspec.msgpack.Encoder().encode
_RECORD = msgspec.msgpack.Decoder(Record)
_HEAD = msgspec.msgpack.Decoder(_Head)


def record_path(number: int) -> str:
    """The path of a record in the repository."""
    return f"log/{number:010}"


def encode_record(record: Record) -> bytes:
    """The bytes of a record."""
    payload = _encode(record)
    size = HEADER.size + len(payload)
    if size > MAX_RECORD:
        raise LimitExceeded("bytes of a change of the repository", size, MAX_RECORD)
    return HEADER.pack(MAGIC, VERSION, 0, _hash(payload)) + payload


def hash_of(content: bytes) -> bytes:
    """The hash that the beginning of a record's content states; of anything else some bytes that are no record's."""
    return content[HEADER.size - 16 : HEADER.size]


def is_record(content: bytes | None, record_hash: bytes) -> bool:
    """Tell whether it is the whole record that has this hash."""
    return content is not None and hash_of(content) == record_hash == _hash(memoryview(content)[HEADER.size :])


def numbers_of(names: Iterable[str] | None) -> list[int]:
    """The numbers of the records in a list of the names in their folder; None is a folder that is missing."""
    return [int(name) for name in names or () if name.isdecimal() and record_path(int(name)) == f"log/{name}"]


def decode_record(content: bytes, path: str) -> Record:
    """The record in a file's content.

    Raises:
        CorruptFile: it is damaged, or none.
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
    """Refuse what cannot be decoded by its features, where it says them: one may change what follows."""
    with contextlib.suppress(msgspec.DecodeError):
        check_features(_HEAD.decode(payload).features)


def check_features(features: Sequence[str]) -> None:
    """Accept a repository with these features."""
    for feature in features:
        if feature not in FEATURES:
            raise Unsupported(f"the repository feature {feature!r}", ", ".join(sorted(FEATURES)) or "none")


def _hash(payload: bytes | memoryview) -> bytes:
    return blake2b(payload, digest_size=16).digest()
