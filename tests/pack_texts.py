"""Every text in every pack file of a repository, whatever names the pack, and every byte of its other files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import smartserver.vcs.all  # noqa: F401
from smartserver.errors import CorruptFile
from smartserver.records.delta import decompress
from smartserver.records.model import BaseTag, Key
from smartserver.records.segment import decode_segment, frames
from smartserver.store.format import CHECKPOINTS, INCOMING, LOG, LOST, PACKS
from smartserver.store.pack import PackReader
from smartserver.store.trailer import trailer_of
from transports.base import Transport
from transports.errors import NoSuchFile

Place = tuple[int, Key]


def texts_in(folder: Transport) -> set[bytes]:
    """All texts; every record can be decoded, from one of the packs that are there."""
    waiting: list[tuple[Place, Place | None, int, int, bytes]] = []
    for path in _files(folder, PACKS, INCOMING):
        if path.endswith(".pack"):
            with contextlib.suppress(CorruptFile):
                waiting += _records(folder, path)
    found: dict[Place, set[bytes]] = {}
    while waiting:
        later = []
        for each in waiting:
            place, base, encoding, length, frame = each
            bases = {b""} if base is None else found.get(base)
            if bases is None:
                later.append(each)
            else:
                found.setdefault(place, set()).update(decompress(encoding, frame, length, text) for text in bases)
        assert len(later) < len(waiting), "a record rests on what is nowhere"
        waiting = later
    return set().union(*found.values())


def bytes_in(folder: Transport) -> bytes:
    """All that is in files, as it lies there."""
    names = (PACKS, INCOMING, LOG, LOST, CHECKPOINTS)
    return b"".join(folder.get_published(path) for path in _files(folder, *names))


def _files(folder: Transport, *names: str) -> Iterator[str]:
    for name in names:
        with contextlib.suppress(NoSuchFile):
            yield from (f"{name}/{each}" for each in folder.list_directory(name))


def _records(folder: Transport, path: str) -> Iterator[tuple[Place, Place | None, int, int, bytes]]:
    length, _ = trailer_of(folder, path, folder.stat(path).size)
    with contextlib.closing(folder.open_read(path)) as file:
        pack = PackReader(file, length, path)
        for _, content in pack.segments():
            segment = decode_segment(content, 0, pack.kinds)
            for entry, frame in zip(segment.entries, frames(segment, content), strict=True):
                base = None if entry.base == BaseTag.NONE else (entry.kind, segment.base_of(entry))
                yield (entry.kind, entry.key), base, entry.encoding, entry.length, bytes(frame)
