"""Checkpoints: a whole state in one file, so that a reader need not read all records from the first.

A checkpoint is derived: records say the same. It is whole or it is none, because one check covers all of it.

The layout: `HEADER`, the fields of `_Head` in msgpack, the tables one after the other, and the entries in msgpack.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable
from hashlib import blake2b
from itertools import accumulate, pairwise

import msgspec

from smartserver.errors import CorruptFile
from smartserver.records.model import Kind
from smartserver.records.system import system_of
from smartserver.store.format import CHECKPOINTS
from smartserver.store.history import History, Horizon, LogEntry
from smartserver.store.record import Bytes16, Natural, PackEntry, check_features, check_head
from smartserver.store.state import Dropped, State
from smartserver.store.table import SortedBytes, Table

MAGIC = b"hpss-ckp"
VERSION = 1
HEADER = struct.Struct("<8sHHI16s")
"""Magic, version, flags (0), length of the head, BLAKE2b-16 of all that follows: head, tables, entries."""


class _TableHead(msgspec.Struct, frozen=True, array_like=True):
    """A table: bytes of its keys and values, and its length among the tables."""

    name: str
    kind: str
    size: Natural
    length: Natural


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """The state, without its tables' content and its entries. Later releases append fields."""

    version: Natural
    hash: Bytes16
    features: tuple[str, ...]
    incarnation: bytes
    vcs: str
    kinds: tuple[Kind, ...]
    packs: tuple[PackEntry, ...]
    settings: dict[str, bytes]
    settings_version: Natural
    tables: tuple[_TableHead, ...]
    dropped: dict[bytes, Dropped]
    horizon: Horizon


_encode = msgspec.msgpack.Encoder().encode
_HEAD = msgspec.msgpack.Decoder(_Head)
_ALIKE = [name for name in _Head.__struct_fields__ if name not in ("tables", "horizon")]
"""The fields that a head and a state have in common."""
_ENTRIES = msgspec.msgpack.Decoder(list[LogEntry])


def checkpoint_path(version: int, record_hash: bytes) -> str:
    """The path of the checkpoint of the state after that record."""
    return f"{CHECKPOINTS}/{version:010}-{record_hash.hex()}"


def encode_checkpoint(state: State) -> bytes:
    """The bytes of the file; of equal states they are equal."""
    tables = [(name, table, table.encode()) for name, table in sorted(state.tables.items())]
    heads = tuple(_TableHead(name, table.kind, table.size, len(content)) for name, table, content in tables)
    said = {name: getattr(state, name) for name in _ALIKE}
    said |= {name: dict(sorted(said[name].items())) for name in ("settings", "dropped")}
    head = _encode(_Head(tables=heads, horizon=state.history.horizon, **said))
    parts = [head, *(content for _, _, content in tables), _encode(list(state.history))]
    check = blake2b(digest_size=16)
    for part in parts:
        check.update(part)
    return b"".join([HEADER.pack(MAGIC, VERSION, 0, len(head), check.digest()), *parts])


def decode_checkpoint(content: bytes, path: str) -> State:
    """The state in a file's content; its tables are not decoded.

    Raises:
        CorruptFile: it is damaged, or no checkpoint.
    """
    if len(content) < HEADER.size:
        raise CorruptFile(path, 0, f"{len(content)} bytes, too short for a checkpoint")
    magic, version, flags, length, check = HEADER.unpack_from(content)
    if (magic, version, flags) != (MAGIC, VERSION, 0):
        raise CorruptFile(path, 0, f"begins with {content[:12]!r}: no checkpoint this release reads")
    rest = memoryview(content)[HEADER.size :]
    if blake2b(rest, digest_size=16).digest() != check:
        raise CorruptFile(path, HEADER.size, "the content does not match its check")
    try:
        head = _HEAD.decode(rest[:length])
        check_features(head.features)
        *places, end = accumulate((table.length for table in head.tables), initial=length)
        spans = pairwise([*places, end])
        tables = {
            table.name: Table(table.kind, SortedBytes(rest[start:stop], path), table.size)
            for table, (start, stop) in zip(head.tables, spans, strict=True)
        }
        entries = _ENTRIES.decode(rest[end:])
    except msgspec.DecodeError as error:
        check_head(rest[:length])
        raise CorruptFile(path, HEADER.size, str(error)) from error
    if head.vcs:
        system_of(head.vcs)
    said = {name: getattr(head, name) for name in _ALIKE}
    return State(tables=tables, history=History(entries, head.horizon), **said)


def newest_first(names: Iterable[str]) -> list[tuple[int, bytes]]:
    """The versions and hashes of the records whose checkpoints are among these names."""
    found: list[tuple[int, bytes]] = []
    for name in names:
        version, _, record_hash = name.partition("-")
        with contextlib.suppress(ValueError):
            record = int(version), bytes.fromhex(record_hash)
            if checkpoint_path(*record) == f"{CHECKPOINTS}/{name}":
                found.append(record)
    return sorted(found, reverse=True)
