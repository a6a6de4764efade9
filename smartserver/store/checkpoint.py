"""Writes and reads checkpoints, each a whole state in one file, so that a reader need not read all records from the
first. Also deletes the records below a checkpoint.

A checkpoint is derived from records. One check covers all of it, so a damaged checkpoint is never used in part.

The layout: `HEADER`, the fields of `_Head` in msgpack, the tables one after the other, and the entries in msgpack.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, pairwise

import msgspec

from smartserver.errors import CorruptFile
from smartserver.records.model import Kind
from smartserver.records.system import system_of
from smartserver.store.format import CHECKPOINTS, INCOMING, LOG
from smartserver.store.history import History, Horizon, LogEntry
from smartserver.store.record import (
    Bytes16,
    Natural,
    PackEntry,
    check_features,
    check_head,
    hash_of,
    numbers_of,
    record_path,
)
from smartserver.store.state import Dropped, State
from smartserver.store.table import SortedBytes, Table
from transports.base import Transport
from transports.errors import NoSuchFile
from transports.steps import (
    Delete,
    Get,
    GetPublished,
    GetStat,
    ListDirectory,
    Publish,
    Put,
    Rename,
    SyncDirectory,
    Withdraw,
)

MAGIC = b"hpss-ckp"
VERSION = 1
HEADER = struct.Struct("<8sHHI16s")
"""Magic, version, flags (0), length of the head, BLAKE2b-16 of all following bytes: head, tables, entries."""


class _TableHead(msgspec.Struct, frozen=True, array_like=True):
    """A table without its content. `size`: the bytes of its keys and values. `length`: the bytes of the encoded
    table."""

    name: str
    kind: str
    size: Natural
    length: Natural


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """A state without its entries and the content of its tables. Later releases append fields."""

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


@dataclass(slots=True)
class Since:
    """Counts of the records since the last checkpoint. `records`, `size`: their number and their bytes. `newest`: the
    bytes of the newest record. `checkpoint`: the bytes of the checkpoint."""

    records: int = 0
    size: int = 0
    newest: int = 0
    checkpoint: int = 0

    @property
    def moved(self) -> int:
        """The estimated number of bytes that writing a checkpoint transfers: the new checkpoint is written, and an
        older one is read."""
        return 2 * (self.checkpoint + self.size)


def checkpoint_path(version: int, record_hash: bytes) -> str:
    """Return the path of the checkpoint of the state after a record."""
    return f"{CHECKPOINTS}/{version:010}-{record_hash.hex()}"


def encode_checkpoint(state: State) -> bytes:
    """Encode a state; equal states have equal bytes."""
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
    """Decode the state in a checkpoint. The entries of its tables are decoded when they are used.

    Raises:
        CorruptFile: the content is damaged, or is not a checkpoint.
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
    """Return the versions and record hashes of the checkpoints with these names, the newest first."""
    found: list[tuple[int, bytes]] = []
    for name in names:
        version, _, record_hash = name.partition("-")
        with contextlib.suppress(ValueError):
            record = int(version), bytes.fromhex(record_hash)
            if checkpoint_path(*record) == f"{CHECKPOINTS}/{name}":
                found.append(record)
    return sorted(found, reverse=True)


FEW = 64
"""The fewest records since the last checkpoint after which another checkpoint may be due."""
MANY = 1536
"""The number of records since the last checkpoint after which another checkpoint is always due."""
SHARE = 16
"""Between `FEW` and `MANY` records, a checkpoint is due once their bytes times `SHARE` reach those of the last
checkpoint."""
FLOOR_AGE = 3600.0
"""Records below a checkpoint are deleted if the checkpoint is at least this many seconds older than the newest one."""
AT_ONCE = 256
"""The most records that are deleted in one call of the store."""


def is_due(since: Since) -> bool:
    """Tell whether another checkpoint is due."""
    return since.records >= MANY or (since.records >= FEW and since.size * SHARE >= since.checkpoint)


def make_checkpoint(folder: Transport, state: State, randomness: Callable[[int], bytes]) -> int:
    """Write a checkpoint durably, and return the number of its bytes. Several processes may do so at once."""
    content = encode_checkpoint(state)
    temporary = f"{INCOMING}/{randomness(8).hex()}.checkpoint"
    path = checkpoint_path(state.version, state.hash)
    put, rename = Put(temporary, content), Rename(temporary, path)
    folder.perform([SyncDirectory(LOG), put, rename, SyncDirectory(CHECKPOINTS)])
    return len(content)


def create(folder: Transport, path: str, content: bytes, randomness: Callable[[int], bytes]) -> None:
    """Create a file of a repository exclusively and durably. It may be a record without a predecessor, if its state has
    a checkpoint.

    Raises:
        FileExists: the file exists already.
    """
    temporary = f"{INCOMING}/{randomness(8).hex()}.new"
    folder.perform([Put(temporary, content), Publish(temporary, path), SyncDirectory(path.rpartition("/")[0])])


def clean_log(folder: Transport, randomness: Callable[[int], bytes]) -> int:
    """Delete the records and checkpoints below the floor, and return the number of deleted records. It is called after
    a checkpoint was written.

    Records are deleted one by one in ascending order: if the newest record that a server knows still exists, no later
    record was deleted. The floor is a checkpoint, but never the newest, which may be damaged. It is an hour old: a
    store that repeats a late request must not put a deleted record back.
    """
    names, records = ListDirectory(CHECKPOINTS), ListDirectory(LOG)
    folder.perform([names, records])
    found = newest_first(names.result or ())
    floor = _floor(folder, found)
    if floor is None:
        return 0
    below = sorted(number for number in numbers_of(records.result) if number < floor)
    gone = [Withdraw(record_path(number), f"{INCOMING}/{randomness(8).hex()}.withdrawn") for number in below]
    try:
        for first in range(0, len(gone), AT_ONCE):
            folder.perform(gone[first : first + AT_ONCE])
        folder.perform([Delete(checkpoint_path(*name)) for name in found if name[0] < floor])
    except NoSuchFile:  # Another process is deleting them.
        return 0
    return len(gone)


def _floor(folder: Transport, found: Sequence[tuple[int, bytes]]) -> int | None:
    """Return the version of the newest checkpoint that is old enough; the newest of all does not count. Return None if
    no checkpoint is old enough, or the one found is damaged or of another log."""
    looks = [GetStat(checkpoint_path(*name)) for name in found]
    folder.perform(looks)
    times = [look.result.modified if look.result is not None else None for look in looks]
    if not times or times[0] is None:
        return None
    for (version, record_hash), time in list(zip(found, times, strict=True))[1:]:
        if time is None or times[0] - time < FLOOR_AGE:
            continue
        file, record = Get(checkpoint_path(version, record_hash)), GetPublished(record_path(version))
        folder.perform([file, record])
        if file.result is None or record.result is None or hash_of(record.result) != record_hash:
            return None
        try:
            decode_checkpoint(file.result, file.path)
        except CorruptFile:
            return None
        return version
    return None
