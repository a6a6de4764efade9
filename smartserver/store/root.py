"""What a root says, and how the next one is made.

Each root's version is one more than the last one's. It stays under 64 KiB: past 48 KiB the older half of its log and
its largest tables move to immutable files, written before the root that names them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeGuard

import msgspec

from smartserver.errors import CorruptFile, LimitExceeded
from smartserver.records.model import RefValue
from smartserver.records.system import system_of
from smartserver.store import swap_log
from smartserver.store.document import (
    DECLARED,
    DROPPED,
    INCARNATION,
    MAP,
    REFS,
    SETTINGS,
    Dropped,
    PackEntry,
    Root,
    decode_value,
    encode_root,
    encode_value,
    milliseconds,
)
from smartserver.store.intent import NAMED, PREFIX, Intent
from smartserver.store.model import Changes, RootVersion
from smartserver.store.swap_log import LogChange, LogEntry, LogFile, NewLogEntry
from smartserver.store.tables import (
    INLINE,
    OVERHEAD,
    DraftTable,
    Lookup,
    OpenTable,
    Table,
    TableFile,
    TableMapping,
    check_key,
    check_name,
)
from transports.base import Transport
from transports.errors import NoSuchFile, PermissionDenied, TransportError, TransportFailed

FOLD_AT = 48 * 1024
"""A root of more bytes is folded."""
MAX_STATE = 60 << 20
"""Bytes of all refs, entries of maps and settings, at most: a reply of 64 MiB carries them to a client that knows none.
500,000 refs of 120 bytes are 57.2 MiB; 4 MiB are left for what else a reply says. An entry counts as `LEAST_ENTRY` at
least, so that there are 2**19 at most: a client takes no more, as a short one costs it as much memory as a long one."""

MAX_MAPS = 64
"""Maps of a repository; a client takes no more."""

DROPPED_KEPT = 24 * 3600 * 1000
"""Milliseconds a file no root names any more is kept for those who read an older root."""

Files = list[tuple[str, bytes]]
"""Path and content of files to be written and synced before the root that names them."""

_encode = msgspec.msgpack.Encoder().encode
_DROPPED = msgspec.msgpack.Decoder(tuple[int, int])


def _identity(value: bytes) -> bytes:
    return value


class RootView:
    """A root with its files, read when asked for.

    Whatever reads a file raises CorruptFile when it is damaged, and NoSuchFile when a later root dropped it more than
    24 hours ago: read the root again. `previous`: a view whose opened tables are taken over where they are the same.
    """

    def __init__(self, root: Root, transport: Transport, previous: RootView | None = None) -> None:
        self.root = root
        self.transport = transport
        self._opened: dict[bytes, OpenTable] = {}
        self._read: dict[str, bytes] = {}
        """Table files that were read already, by path."""
        self._filed: set[bytes] | None = None
        """The requests in the log's files, once that was asked."""
        if previous is not None:
            named = {table.file.name for table in root.tables.values() if table.file is not None}
            self._opened = {name: opened for name, opened in list(previous._opened.items()) if name in named}

    def refs(self) -> Mapping[bytes, RefValue]:
        """All refs, in name order."""
        return TableMapping(self.lookup(REFS), decode_value)

    def ref(self, name: bytes) -> RefValue | None:
        """One ref, or None."""
        value = self.lookup(REFS).get(name)
        return None if value is None else decode_value(value)

    @property
    def maps(self) -> Mapping[str, Mapping[bytes, bytes]]:
        """The maps by name."""
        words = [name.removeprefix(MAP) for name in self.root.tables if name.startswith(MAP)]
        return {word: self.map(word) for word in words}

    def map(self, word: str) -> Mapping[bytes, bytes]:
        """One map; empty where none of that name was declared."""
        return TableMapping(self.lookup(MAP + word), _identity)

    def map_kind(self, word: str) -> str | None:
        """How a map was declared, or None."""
        found = self.root.tables.get(MAP + word)
        return None if found is None else found.kind

    def dropped(self) -> list[Dropped]:
        """The files no root names any more, whose 24 hours are not over or which were not forgotten yet."""
        return [Dropped(name, *_DROPPED.decode(value)) for name, value in self.lookup(DROPPED).items()]

    def files(self) -> frozenset[str]:
        """Paths of the table and log files this root names; dropped table files are in `dropped`, by name."""
        tables = {table.file.path for table in self.root.tables.values() if table.file is not None}
        return frozenset(tables | {file.path for file in self.root.log_files})

    def lookup(self, table: str) -> Lookup:
        """A table by its name in the root; an empty one when there is none."""
        found = self.root.tables.get(table)
        return Lookup(found or Table("opaque"), self.root.changes.get(table, {}), self.open_table)

    def open_table(self, file: TableFile) -> OpenTable:
        """A table's file, opened once."""
        opened = self._opened.get(file.name)
        if opened is None:
            content = self._read.pop(file.path, None)
            content = self.transport.get(file.path) if content is None else content
            opened = self._opened[file.name] = OpenTable(memoryview(content), file)
        return opened

    def unopened(self) -> dict[str, int]:
        """Path and length of the files of refs and maps that were not opened yet."""
        files = [table.file for name, table in self.root.tables.items() if name != DROPPED]
        return {file.path: file.length for file in files if file is not None and file.name not in self._opened}

    def take_over(self, read: Mapping[str, bytes | None]) -> None:
        """Open those of its tables that are among these files from their content."""
        self._read = {path: content for path in self.unopened() if (content := read.get(path)) is not None}

    def mark(self, version: int) -> int:
        """The mark of a version, `log_from` or a later one."""
        newest = next((entry for entry in reversed(self.root.log) if entry.version <= version), None)
        return self.root.log_mark if newest is None else newest.mark

    def changes_since(self, known: RootVersion | None) -> Changes:
        """What changed since the root a client knows; everything when that cannot be told."""
        root = self.root
        mark = self.mark(root.version)
        untold = system_of(root.vcs).untold
        if not self._continues(known):
            settings = dict(root.settings)
            every = TableMapping(self.lookup(REFS), _identity)
            told_maps = {word: entries for word, entries in self.maps.items() if word not in untold}
            return Changes(root.incarnation, root.version, None, every, told_maps, root.vcs, settings, mark)
        since = known.version
        refs: dict[bytes, bytes | None] = {}
        maps: dict[str, dict[bytes, bytes | None]] = {}
        for entry in root.log:
            for change in entry.changes if entry.version > since else ():
                if change.table == REFS:
                    refs[change.key] = change.new
                elif change.table.startswith(MAP) and change.table.removeprefix(MAP) not in untold:
                    maps.setdefault(change.table.removeprefix(MAP), {})[change.key] = change.new
        told = root.settings_version <= since
        return Changes(
            root.incarnation,
            root.version,
            since,
            refs,
            maps,
            "" if told else root.vcs,
            {} if told else dict(root.settings),
            mark,
        )

    def _continues(self, known: RootVersion | None) -> TypeGuard[RootVersion]:
        """Whether the log says what changed since a root."""
        root = self.root
        return (
            known is not None
            and known.incarnation == root.incarnation
            and root.log_from <= known.version <= root.version
            and known.mark == self.mark(known.version)
        )

    def changed_keys(self, word: str, known: RootVersion) -> frozenset[bytes] | None:
        """The keys of a map's entries that changed since a root; None where that cannot be told."""
        if not self._continues(known):
            return None
        entries = [entry for entry in self.root.log if entry.version > known.version]
        return frozenset(change.key for entry in entries for change in entry.changes if change.table == MAP + word)

    def find_request(self, request: bytes, *, in_files: bool) -> LogEntry | None:
        """The log's entry of a request, newest first.

        `in_files`: look into the log's files too, which only a repeated request is worth. All of them: when a request
        was first sent is known only by clocks, which may be wrong.
        """
        found = swap_log.find_request(self.root.log, request)
        if found is not None or not in_files:
            return found
        for file in reversed(self.root.log_files):
            found = swap_log.find_in_file(self.transport, file, request)
            if found is not None:
                return found
        return None

    def is_logged(self, request: bytes, *, in_file: bool = False) -> bool:
        """Whether the log has an entry of a request. `in_file`: in one of its files. A file that cannot be read has
        none."""
        if not in_file and swap_log.find_request(self.root.log, request) is not None:
            return True
        if self._filed is None:
            self._filed = set()
            for file in self.root.log_files:
                with contextlib.suppress(CorruptFile, NoSuchFile):
                    self._filed |= {each.request for each in self._logged(file)}
        return request in self._filed

    def log_covers(self, age_ms: int, now: float) -> bool:
        """Whether a request first sent `age_ms` ago would be in the log, had it been carried out."""
        return milliseconds(now) - age_ms >= self.root.log_since

    def log(self) -> Iterator[LogEntry]:
        """Every entry the root still names, newest first."""
        yield from reversed(self.root.log)
        for file in reversed(self.root.log_files):
            yield from reversed(self._logged(file))

    def verify(self) -> list[str]:
        """Read every file the root names; the damages found.

        Raises:
            TransportFailed, PermissionDenied: as `damage`.
        """
        tables = [table.file for table in self.root.tables.values() if table.file is not None]
        checks: list[Callable[[], object]] = [partial(self._check_table, file) for file in tables]
        checks += [partial(self._logged, file) for file in self.root.log_files]
        checks.append(lambda: list(self.refs().values()))  # They travel as they are stored.
        problems: list[str] = []
        for check in checks:
            try:
                check()
            except (CorruptFile, TransportError) as wrong:
                problems.append(damage(wrong))
        return list(dict.fromkeys(problems))

    def _check_table(self, file: TableFile) -> None:
        OpenTable(memoryview(self.transport.get(file.path)), file).verify()

    def _logged(self, file: LogFile) -> list[LogEntry]:
        return swap_log.decode_log(swap_log.read_log(self.transport, file), file.path)


def damage(wrong: CorruptFile | TransportError) -> str:
    """What an error says of a file that is looked at.

    Raises:
        TransportFailed: it is about no file but the store, which cannot be reached.
        PermissionDenied: this process may not read it, which says nothing of the file.
    """
    if isinstance(wrong, PermissionDenied) or (isinstance(wrong, TransportFailed) and not wrong.path):
        raise wrong
    return str(wrong)


def next_root(
    view: RootView,
    *,
    now: float,
    log: NewLogEntry | None = None,
    packs: Sequence[PackEntry] | None = None,
    refs: Mapping[bytes, RefValue | None] = {},
    maps: Mapping[str, Mapping[bytes, bytes | None]] = {},
    declare: Mapping[str, str | None] = {},
    settings: Mapping[str, bytes | None] = {},
    dropped: Sequence[bytes] = (),
    forget: Sequence[bytes] = (),
    fold_log: bool = False,
    epoch: int | None = None,
    incarnation: bytes | None = None,
    randomness: Callable[[int], bytes] = os.urandom,
) -> DraftRoot:
    """The root after `view`'s, planned; `finish` of it gives its document and its files.

    `now`: seconds since the epoch. `packs`: all of them, in arrival order. In `refs`, `maps` and `settings` None
    removes a key. `declare`: kinds of maps, `ids` or `opaque`; None removes a map without entries. `dropped`: packs the
    new root no longer names; table files it replaces are listed with them. `forget`: dropped files that are to be
    deleted. `fold_log`: move all of the log to a file. `incarnation`: a new one. `log` may be left out where neither
    refs nor maps change (repack).

    Raises:
        InvalidName: a ref name or map key that cannot be one.
        CorruptFile, TransportError: a table that must be read cannot be.
    """
    draft = DraftRoot(view, now, randomness)
    if incarnation is not None:
        draft.renew(incarnation)
    if packs is not None:
        draft.packs = tuple(packs)
    if epoch is not None:
        draft.epoch = epoch
    for word, kind in declare.items():
        if kind is not None:
            draft.declare(word, kind)
    for name, value in refs.items():
        draft.change(REFS, name, None if value is None else encode_value(value))
    for word, entries in maps.items():
        for key, entry in entries.items():
            draft.change(MAP + word, key, entry)
    for word, kind in declare.items():
        if kind is None:
            draft.remove_map(word)
    for word, setting in settings.items():
        draft.set(word, setting)
    for gone in dropped:
        draft.drop(gone)
    for gone in forget:
        draft.tables[DROPPED].put(gone, None)
    draft.record(log)
    if fold_log:
        draft.fold_log()
    return draft


def tombstone(
    view: RootView, *, now: float, log: NewLogEntry, randomness: Callable[[int], bytes] = os.urandom
) -> DraftRoot:
    """The root that says the repository is deleted: packs and tables are dropped, the log stays to answer repeats."""
    draft = DraftRoot(view, now, randomness)
    for pack in draft.packs:
        draft.drop(pack.name)
    draft.packs = ()
    for name in [name for name in draft.tables if name != DROPPED]:
        file = draft.tables.pop(name).file
        if file is not None:
            draft.drop(file.name)
    draft.tables[REFS] = DraftTable(Lookup(Table("ids"), {}, view.open_table))
    draft.settings, draft.settings_version = {}, draft.version
    draft.deleted = True
    draft.record(log)
    return draft


class DraftRoot:
    """The next root while it is made."""

    def __init__(self, view: RootView, now: float, randomness: Callable[[int], bytes]) -> None:
        root = view.root
        self._view = view
        self._randomness = randomness
        self.version = root.version + 1
        self.now = milliseconds(now)
        self.packs = root.packs
        self.epoch = root.epoch
        self.settings = dict(root.settings)
        self.settings_version = root.settings_version
        self.tables = {name: DraftTable(view.lookup(name)) for name in root.tables}
        self.log = list(root.log)
        self.log_from = root.log_from
        self.deleted = root.deleted
        self.incarnation = root.incarnation
        self.entry: LogEntry | None = None
        """What the log will say of this change."""
        self._grown = 0
        """Bytes by which refs and entries of maps grew."""
        self._more = 0
        """Entries that were added, less those that were removed."""
        self._changed: list[LogChange] = []
        self._described: list[LogChange] = []
        """Changes of settings and new maps, which may be made without an entry of the log."""
        self._moved: list[LogEntry] = []
        """Log entries on their way into a file, oldest first."""
        self._dropped_logs: set[bytes] = set()

    def renew(self, incarnation: bytes) -> None:
        """Give the repository another incarnation, which the log says."""
        self._described.append(LogChange(INCARNATION, b"", self.incarnation, incarnation))
        self.incarnation = incarnation

    def declare(self, name: str, kind: str) -> None:
        """Add a map, `ids` or `opaque`, or change its kind."""
        check_name(name.encode())
        if kind not in ("ids", "opaque"):
            raise ValueError(f"a map is ids or opaque, not {kind!r}")
        old = self._view.map_kind(name)
        if MAP + name not in self.tables:
            self.tables[MAP + name] = DraftTable(Lookup(Table(kind), {}, self._view.open_table))
        if old != kind:
            table = self.tables[MAP + name]
            table.stored = msgspec.structs.replace(table.stored, kind=kind)
            before = None if old is None else old.encode()
            self._described.append(LogChange(DECLARED, name.encode(), before, kind.encode()))

    def remove_map(self, name: str) -> None:
        """Remove a map that has no entries any more."""
        table = self.tables.pop(MAP + name)
        if any(table.items()):
            raise ValueError(f"the map {name!r} has entries")
        if table.file is not None:
            self.drop(table.file.name)
        self._described.append(LogChange(DECLARED, name.encode(), table.stored.kind.encode(), None))

    def change(self, table: str, key: bytes, new: bytes | None) -> None:
        """Set a key of the refs or a map; None removes it."""
        (check_name if table == REFS else check_key)(key)
        if table not in self.tables:
            raise ValueError(f"the map {table.removeprefix(MAP)!r} was never declared")
        old = self.tables[table].get(key)
        if old != new:
            self._grown += len(new or b"") - len(old or b"") + (len(key) if old is None else 0)
            self._grown -= len(key) if new is None else 0
            self._more += (old is None) - (new is None)
            self.tables[table].put(key, new)
            self._changed.append(LogChange(table, key, old, new))

    def set(self, name: str, value: bytes | None) -> None:
        """Set a setting; None removes it."""
        old = self.settings.get(name)
        if old == value:
            return
        self._described.append(LogChange(SETTINGS, name.encode(), old, value))
        if value is None:
            del self.settings[name]
        else:
            self.settings[name] = value
        self.settings_version = self.version

    def drop(self, name: bytes) -> None:
        """List a file that this root no longer names."""
        self.tables[DROPPED].put(name, _encode((self.now, self.version)))

    def record(self, new: NewLogEntry | None) -> None:
        """Add the changes so far to the log."""
        if new is not None:
            changes = [*self._described, *self._changed]
            entry = LogEntry(self.version, self.now, new.user, new.request, new.outcomes, changes)
            self.log.append(entry)
            self.entry = entry
            if len(_encode(entry)) > swap_log.LARGE_ENTRY:
                self.fold_log()
        elif self._changed:
            raise ValueError("refs and maps change with an entry of the log only")

    def intent(self) -> Intent:
        """What is to be written down before the root is swapped."""
        root = self._view.root
        newest = [(entry.version, entry.request[:PREFIX]) for entry in root.log[-NAMED:]]
        filed = (root.log_from, root.log_mark.to_bytes(swap_log.MARK, "big"))
        return Intent(self.incarnation, tuple(newest) or (filed,), self.entry)

    def fold_log(self) -> None:
        """Move all of the log to a file."""
        self._moved, self.log = self._moved + self.log, []

    def finish(self) -> tuple[Root, Files]:
        """The document, and the files to be made durable before it.

        Raises:
            LimitExceeded: it would take more than 64 KiB although everything that can lies in files, or its refs and
                maps would take more than a reply can carry.
            CorruptFile, TransportError: a table that must be folded cannot be read.
        """
        self._check_state()
        for name, table in list(self.tables.items()):
            if table.file is None and table.size() >= INLINE:
                self._fold_table(name)
        while True:
            root, files = self._root()
            if len(_encode(root)) <= FOLD_AT or not self._fold_largest():
                encode_root(root)  # Refuses what is too large before anything is written.
                return root, files

    def _check_state(self) -> None:
        """Refuse more than a reply can carry; what is too large already may become smaller.

        A table's file has ten bytes an entry besides key and value, a reply at most eight. The bytes that a change
        replaces or removes of a file are counted until it is written again, 64 KiB at most, and what is replaced as an
        entry more.
        """
        maps = sum(name.startswith(MAP) for name in self.tables)
        if maps > MAX_MAPS and any(change.table == DECLARED for change in self._described):
            raise LimitExceeded("maps of a repository", maps, MAX_MAPS)
        size = sum(table.held() for name, table in self.tables.items() if name != DROPPED)
        size += sum(len(name.encode()) + len(value) + OVERHEAD for name, value in self.settings.items())
        if size > MAX_STATE and (self._grown > 0 or self._more > 0):
            raise LimitExceeded("bytes of refs, map entries and settings of a repository", size, MAX_STATE)

    def _fold_largest(self) -> bool:
        """Move what takes most of the root to a file; False when nothing is left to move."""
        sizes = {name: table.size() for name, table in self.tables.items()}
        largest = max(sizes, key=sizes.__getitem__)
        log = len(_encode(self.log)) if self.log else 0
        if log and log >= sizes[largest]:
            older, self.log = swap_log.older_half(self.log)
            self._moved += older
            return True
        if sizes[largest]:
            self._fold_table(largest)
            return True
        return False

    def _fold_table(self, name: str) -> None:
        table = self.tables[name]
        replaced = table.fold(self._randomness(16), into_file=table.file is None)
        if replaced is not None:
            self.drop(replaced)

    def _drop_logs(self, files: frozenset[LogFile]) -> None:
        """List the log files that are dropped, in place of those listed while less of the log was on its way."""
        for name in self._dropped_logs:
            self.tables[DROPPED].put(name, None)
        self._dropped_logs = {file.name for file in files}
        for name in self._dropped_logs:
            self.drop(name)

    def _root(self) -> tuple[Root, Files]:
        logs: Files = []
        old = self._view.root
        log_since, log_from, log_mark = old.log_since, self.log_from, old.log_mark
        named = list(old.log_files)
        if self._moved:
            named, moved = swap_log.absorb(self._view.transport, named, self._moved)
            line, content = swap_log.log_file(moved, self._randomness(8))
            named.append(line)
            logs.append((line.path, content))
            log_from, log_mark = line.last, self._moved[-1].mark
        while len(named) > swap_log.KEPT_FILES and (
            named[0].time + swap_log.KEPT < self.now or len(named) > swap_log.MAX_FILES
        ):
            # A clock that was ahead must not make every later repeat one that the log does not reach.
            log_since = min(named.pop(0).time, self.now) + swap_log.CLOCK_MARGIN
        self._drop_logs(frozenset(old.log_files).difference(named))
        files = [file for table in self.tables.values() if (file := table.new_file()) is not None] + logs
        ordered = sorted(self.tables.items())
        root = msgspec.structs.replace(
            old,
            incarnation=self.incarnation,
            version=self.version,
            epoch=self.epoch,
            packs=self.packs,
            settings=self.settings,
            settings_version=self.settings_version,
            tables={name: table.table() for name, table in ordered},
            changes={name: dict(sorted(table.changes.items())) for name, table in ordered if table.changes},
            log=tuple(self.log),
            log_from=log_from,
            log_since=log_since,
            log_files=tuple(named),
            deleted=self.deleted,
            log_mark=log_mark,
        )
        return root, files
