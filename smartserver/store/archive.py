"""Writes a repository as a tar archive of its folder at one moment (doc/spec/dump.md), so that code that reads a folder
can also read the archive. Packs in an earlier archive are left out: archives are read together, or unpacked in order.

A *backup* has the unchanged files of packs, a new checkpoint and the newest record. A *dump* has the data that any
reader gets from a server: a log of two records, and one pack. A later dump adds a record and a pack.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from smartserver.errors import CorruptFile
from smartserver.records.model import Kind, RefValue
from smartserver.store.checkpoint import checkpoint_path, encode_checkpoint
from smartserver.store.format import FORMAT, LINE
from smartserver.store.open_pack import index_path, pack_path
from smartserver.store.pack import CHUNK, TRAILER, encode_header
from smartserver.store.record import NOTHING, Beginning, Change, Entry, PackEntry, hash_of, record_path
from smartserver.store.remote import AT_ONCE
from smartserver.store.state import (
    DECLARED,
    MAP,
    REFS,
    SETTINGS,
    State,
    beginning,
    changed,
    encode_value,
    following,
    kind_of,
)
from transports.base import Transport
from transports.steps import GetPublished, GetStat, ReadRanges
from transports.tar import END

USER = "dump"
"""The user in the log entry of a dump."""


class ServerDump(NamedTuple):
    """The content of a repository, read from a server. `maps`: the kind and the entries of each map, by its name."""

    vcs: str
    kinds: tuple[Kind, ...]
    settings: Mapping[str, bytes]
    refs: Mapping[bytes, RefValue]
    maps: Mapping[str, tuple[str, Mapping[bytes, bytes]]]


def backup(folder: Transport, state: State, earlier: Transport | None) -> Iterator[bytes]:
    """Yield the archive of a repository in a state, without the packs that an earlier archive has."""
    least: dict[str, int] = {}
    for entry in state.packs:
        least[pack_path(entry.name)] = entry.length
        least[index_path(entry.name)] = 0  # A missing index is rebuilt from the pack.
    looks = [GetStat(path) for path in least if earlier is None or not earlier.exists(path)]
    record = GetPublished(record_path(state.version))
    folder.perform([*looks, record])
    if record.result is None or hash_of(record.result) != state.hash:
        raise CorruptFile(record.path, 0, "another process replaced or deleted it; try again")
    sizes = {look.path: 0 if look.result is None else look.result.size for look in looks}
    for path, size in sizes.items():
        if size < least[path]:
            raise CorruptFile(path, size, f"{size} bytes, expected {least[path]}")
    yield _member(FORMAT, LINE)
    yield from _files(folder, sizes)
    yield _member(checkpoint_path(state.version, state.hash), encode_checkpoint(state))
    yield _member(record.path, record.result) + END


def _files(folder: Transport, sizes: Mapping[str, int]) -> Iterator[bytes]:
    """Yield the archive members of files. `AT_ONCE` bytes are read in a round trip."""
    pieces = [(path, at) for path, size in sizes.items() for at in range(0, size, CHUNK)]
    for first in range(0, len(pieces), AT_ONCE // CHUNK):
        group = pieces[first : first + AT_ONCE // CHUNK]
        reads = [ReadRanges(path, [(at, min(CHUNK, sizes[path] - at))]) for path, at in group]
        folder.perform(reads)
        for read, (path, at) in zip(reads, group, strict=True):
            content, size = read.result[0], sizes[path]
            if len(content) < min(CHUNK, size - at):
                raise CorruptFile(path, at + len(content), "the file became shorter")
            yield (b"" if at else _header(path, size)) + content
            if at + len(content) == size:
                yield _padding(size)


def dumped(
    told: ServerDump,
    earlier: State | None,
    segments: int,
    size: int,
    body: Iterable[bytes],
    last: Iterable[tuple[str, dict[bytes, bytes]]],
) -> Iterator[bytes]:
    """Yield the archive of a server's repository, whole or as an addition to `earlier`, the state of an earlier
    archive. `body`: the bytes of the segments that the earlier archive lacks, `segments` segments with `size` bytes.
    `last`: further entries of maps, by map, which are read after the body."""
    yield _member(FORMAT, LINE)
    begin, first = beginning(NOTHING, 0)
    state = earlier or first
    # The name follows from the content, so two dumps of the same repository are equal.
    said = msgspec.msgpack.encode(
        [
            state.hash,
            *told._replace(refs={}, maps={}),
            sorted(told.refs.items()),
            sorted(told.maps.items()),
            segments,
            size,
        ]
    )
    name = blake2b(said, digest_size=16).digest()
    if earlier is None:
        yield _member(record_path(state.version), begin)
    pack = None
    if segments:
        head = encode_header(told.kinds)
        digest = blake2b(head, digest_size=TRAILER)
        length = len(head) + size + TRAILER
        yield _header(pack_path(name), length) + head
        for chunk in body:
            digest.update(chunk)
            yield chunk
        yield digest.digest() + _padding(length)
        pack = PackEntry(name, length, digest.digest(), 0, NOTHING, segments, 0)
    else:
        yield from body  # The body is empty, but must be read to its end.
    maps = {word: (kind, dict(entries)) for word, (kind, entries) in told.maps.items()}
    for word, page in last:
        maps.setdefault(word, ("opaque", {}))[1].update(page)
    begins = Beginning(name, told.vcs, told.kinds) if earlier is None else None
    entry = Entry(name, USER, b"", tuple(_changes(state, told._replace(maps=maps))), pack, begins)
    yield _member(record_path(state.version + 1), following(state, 0, (entry,))[0]) + END


def _changes(state: State, told: ServerDump) -> Iterator[Change]:
    """Yield the changes that turn a state into that of a server's repository."""
    tables = {REFS: {name: encode_value(value) for name, value in told.refs.items()}}
    for word, (kind, entries) in sorted(told.maps.items()):
        yield from changed(DECLARED, word.encode(), kind_of(state, word), kind.encode())
        tables[MAP + word] = dict(entries)
    settings = {name.encode(): value for name, value in told.settings.items()}
    before: Mapping[bytes, bytes] = {name.encode(): value for name, value in state.settings.items()}
    for table, new in [(SETTINGS, settings), *((name, tables.get(name, {})) for name in {**tables, **state.tables})]:
        old = before if table == SETTINGS else state.table(table)
        for key in sorted({*old, *new}):
            yield from changed(table, key, old.get(key), new.get(key))


def _member(path: str, content: bytes) -> bytes:
    return _header(path, len(content)) + content + _padding(len(content))


def _header(path: str, size: int) -> bytes:
    member = tarfile.TarInfo(path)
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)
