"""Strays: files in a repository that its root does not name, and what proves that one may be deleted.

A stray was left by a dead writer, or was named by a root that somebody replaced with an older one from a backup. Its
age does not tell which. It is deleted only with a proof that nothing is lost with it, and else moved to `lost/`.

The proofs: the request of its intent is in the log, so that change was made, with this pack or another; or it is a
joined pack, and each of its segments is stored as it is; or it is a log file whose requests are all in the log.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from smartserver.errors import CorruptFile
from smartserver.records.segment import decode_segment
from smartserver.store import swap_log
from smartserver.store.document import Root
from smartserver.store.format import LOG, LOST, PACKS, TABLES
from smartserver.store.intent import SUFFIX, TAIL, Intent, ranges_of, read_intent
from smartserver.store.pack import PackReader
from smartserver.store.root import RootView
from smartserver.store.snapshot import Snapshot
from smartserver.store.swap_log import LogEntry
from transports.base import ReadFile, Stat, Transport
from transports.errors import FileExists, NoSuchFile
from transports.steps import GetStat, MakeDirectory, ReadRanges, Rename, SyncDirectory

PLACES = (PACKS, TABLES, LOG)
"""Folders whose files a root names."""


@dataclass(slots=True)
class Stray:
    """A file that the root does not name, or a pack with its index."""

    files: dict[str, Stat] = field(default_factory=dict)
    """By their paths."""
    intent: Intent | None = None
    """What its change was about to do; None where nothing says so."""
    length: int = 0
    """Where the intent begins: of a pack its length."""

    @property
    def paths(self) -> list[str]:
        """Where its files lie."""
        return list(self.files)

    @property
    def modified(self) -> float:
        """When the newest of them was last changed, by the store's clock."""
        return max(each.modified for each in self.files.values())

    @property
    def pack(self) -> str | None:
        """The path of its pack, if it has one."""
        return next((path for path in self.paths if path.endswith(".pack")), None)

    @property
    def is_intent(self) -> bool:
        """Whether it is the intent of a change without a pack."""
        return self.paths[0].endswith(SUFFIX)

    @property
    def is_log(self) -> bool:
        """Whether it is a log file."""
        place, _, name = self.paths[0].partition("/")
        return place in (LOG, LOST) and "-" in name and not self.is_intent

    def entries(self, folder: Transport) -> list[LogEntry]:
        """The entries of the log that are written down in it, oldest first; none where it cannot be read."""
        if self.intent is not None:
            return [] if self.intent.entry is None else [self.intent.entry]
        with contextlib.suppress(CorruptFile):
            return swap_log.decode_log(folder.get(self.paths[0]), self.paths[0]) if self.is_log else []
        return []

    @property
    def is_joined(self) -> bool:
        """Whether it is a pack that a repack made."""
        return self.pack is not None and self.intent is not None and self.intent.entry is None


def stem(path: str) -> str:
    """The folder and name of a file without its ending, which a pack and its index share."""
    return path if path.endswith(SUFFIX) else path.removesuffix(".pack").removesuffix(".idx")


def hex_name(path: str) -> str:
    """The name by which `dropped` lists a file."""
    return stem(path).partition("/")[2].rpartition("-")[2]


def named(root: Root) -> set[str]:
    """The stems of the files that a root names."""
    found = {f"{PACKS}/{pack.name.hex()}" for pack in root.packs}
    found |= {table.file.path for table in root.tables.values() if table.file is not None}
    return found | {file.path for file in root.log_files}


def find(folder: Transport, listed: Sequence[str], root: Root, dropped: Collection[bytes]) -> list[Stray]:
    """The strays among files that were listed before the root was read."""
    known, gone = named(root), {name.hex() for name in dropped}
    unnamed = [path for path in listed if stem(path) not in known and hex_name(path) not in gone]
    looks = [GetStat(path) for path in unnamed]
    folder.perform(looks)
    found: dict[str, Stray] = {}
    for look in looks:
        if look.result is not None:
            found.setdefault(stem(look.path), Stray()).files[look.path] = look.result
    _read_intents(folder, list(found.values()))
    return list(found.values())


def _read_intents(folder: Transport, found: Sequence[Stray]) -> None:
    """Read the ends of all files that may have an intent, in one go; what is gone by now has none."""
    asked = [(each, path) for each in found if (path := each.paths[0] if each.is_intent else each.pack) is not None]
    sizes = [stray.files[path].size for stray, path in asked]
    tails = [ReadRanges(path, [(max(0, size - TAIL), TAIL)]) for (_, path), size in zip(asked, sizes, strict=True)]
    try:
        folder.perform(tails)
    except NoSuchFile:
        for stray in found if len(found) > 1 else ():
            _read_intents(folder, [stray])
        return
    for (stray, path), size, tail in zip(asked, sizes, tails, strict=True):
        with contextlib.suppress(CorruptFile, NoSuchFile):
            stray.length, stray.intent = read_intent(tail.result[0], ranges_of(folder, path), size, path)


def is_superseded(stray: Stray, view: RootView, snapshot: Callable[[], Snapshot]) -> bool:
    """Whether nothing is lost with a stray. `snapshot`: the repository, opened when that is needed.

    Raises:
        CorruptFile, TransportError: what it is compared with cannot be read.
    """
    folder = view.transport
    if stray.is_joined:
        with contextlib.suppress(NoSuchFile, CorruptFile):
            return _is_stored(folder, stray, snapshot())
        return False
    entries = stray.entries(folder)
    # The intent of a change without a pack stays until a log file has it, so that it is never in the root alone.
    return bool(entries) and all(view.is_logged(each.request, in_file=stray.is_intent) for each in entries)


def is_logged(stray: Stray, view: RootView) -> bool:
    """Whether the log has the request of a stray's intent."""
    entry = None if stray.intent is None else stray.intent.entry
    return entry is not None and view.is_logged(entry.request)


class _RangesFile(ReadFile):
    """A file of which each range is read by a step of its own, on whatever store."""

    def __init__(self, folder: Transport, path: str, size: int) -> None:
        self._read = ranges_of(folder, path)
        self._size = size

    def read_at(self, offset: int, size: int) -> bytes:
        return self._read(offset, size)

    def size(self) -> int:
        return self._size

    def close(self) -> None:
        """There is nothing to give back."""


def open_pack(folder: Transport, stray: Stray) -> PackReader:
    """The pack of a stray that has one.

    Raises:
        CorruptFile: it is no pack.
    """
    assert stray.pack is not None  # Its intent is in it.
    return PackReader(_RangesFile(folder, stray.pack, stray.length), stray.length, stray.pack)


def _is_stored(folder: Transport, stray: Stray, snapshot: Snapshot) -> bool:
    """Whether each segment of a stray's pack is stored as it is."""
    pack = open_pack(folder, stray)
    for _, content in pack.segments():
        ordinal = snapshot.ordinal(decode_segment(content, 0, pack.kinds).revision)
        if ordinal is None or snapshot.segment(ordinal) != content:
            return False
    return True


def make_lost(folder: Transport) -> None:
    """Make the folder `lost`, durably, unless it is there."""
    with contextlib.suppress(FileExists):
        folder.perform([MakeDirectory(LOST), SyncDirectory("")])


def move_to_lost(folder: Transport, paths: Sequence[str]) -> None:
    """Move files to `lost/`, durably."""
    make_lost(folder)
    places = sorted({path.partition("/")[0] for path in paths})
    moves = [Rename(path, f"{LOST}/{path.partition('/')[2]}") for path in paths]
    folder.perform([*moves, *map(SyncDirectory, (LOST, *places))])
