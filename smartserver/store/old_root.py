"""Upgrades repositories of format version 1 to this release's format. The next release will not have this module.

Version 1 had a file `root` with the newest state, which each change replaced under a lock. The folders `log` and
`tables` had the data that did not fit into the root. `format` named the lock: a file `lock` (`file`), or a folder
`lock` (`folder`).

The upgrade holds that lock from the first step to the last:

1. `root`, `log` and `tables` move to `lost/format1`, the root first. From then on an older server finds no repository:
   its next change fails, and it creates nothing in that place.
2. The state in the root becomes a checkpoint, and its record is published, with the next version as its number.
3. `format` is replaced by a rename. It is replaced here and nowhere else. Before, an error of a newer server names this
   command.
4. `lock` moves, too.

An interrupted upgrade is run again. Files in `log` and `checkpoints` before step 3 are incomplete, and are deleted. To
undo an upgrade, first the number after that record is taken, so that no change can be made. Then `format` and the other
files are moved back, the root last.
"""

from __future__ import annotations

import contextlib
import fcntl
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import blake2b
from itertools import pairwise

import msgspec

from smartserver.errors import CorruptFile, NoSuchRepository
from smartserver.records.model import Kind
from smartserver.store.checkpoint import create, make_checkpoint
from smartserver.store.format import CHECKPOINTS, FOLDERS, FORMAT, INCOMING, LINE, LOG, LOST, is_old, parse_format
from smartserver.store.history import CLOCK_MARGIN, History, Horizon, LogEntry
from smartserver.store.record import (
    MARK,
    NOTHING,
    Change,
    PackEntry,
    Record,
    check_features,
    encode_record,
    hash_of,
    record_path,
)
from smartserver.store.state import Dropped, State
from smartserver.store.table import Table
from transports.base import Transport
from transports.errors import DirectoryNotEmpty, FileExists, NoSuchFile, TransportError, TransportFailed
from transports.steps import Get, Put, Rename, SyncDirectory

OLD = f"{LOST}/format1"
"""The folder to which an upgrade moves the old files."""
ROOT, TABLES, LOCK = "root", "tables", "lock"
MOVED = (ROOT, LOG, TABLES)
NONCE = b"upgrade!".hex()
"""The name that an upgrade writes into a lock folder, so that the next upgrade can take over the lock of an interrupted
one."""
NAME = 16
"""Bytes of the name of a pack or table, and of the hash at the end of a file."""
IN_USE = "a process of an older release holds the lock: stop the servers and clients that use the repository"


class _Table(msgspec.Struct, frozen=True, array_like=True):
    """A table: either its entries, or its file, as name, length, hash and number of entries."""

    kind: str
    entries: dict[bytes, bytes] = {}
    file: tuple[bytes, int, bytes, int] | None = None


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    version: int
    time: int
    user: str
    request: bytes
    outcomes: bytes
    changes: tuple[Change, ...] = ()

    def now(self) -> LogEntry:
        mark = int.from_bytes(self.request[:MARK], "big")
        return LogEntry(self.version, mark, self.time, self.user, self.request, self.outcomes, self.changes)


class _LogFile(msgspec.Struct, frozen=True, array_like=True):
    first: int
    last: int
    time: int
    length: int
    hash: bytes
    name: bytes


class _Root(msgspec.Struct, frozen=True, array_like=True):
    incarnation: bytes
    version: int
    epoch: int
    read_features: tuple[str, ...]
    write_features: tuple[str, ...]
    vcs: str
    kinds: tuple[Kind, ...]
    packs: tuple[PackEntry, ...] = ()
    settings: dict[str, bytes] = {}
    settings_version: int = 0
    tables: dict[str, _Table] = {}
    changes: dict[str, dict[bytes, bytes | None]] = {}
    log: tuple[_Entry, ...] = ()
    log_from: int = 0
    log_since: int = 0
    log_files: tuple[_LogFile, ...] = ()
    deleted: bool = False
    log_mark: int = 0


_FILE = msgspec.msgpack.Decoder(tuple[bytes, bytes])
_ROOT = msgspec.msgpack.Decoder(_Root)
_LOG = msgspec.msgpack.Decoder(list[_Entry])


def upgrade(folder: Transport, place: str, randomness: Callable[[int], bytes]) -> bool:
    """Upgrade a repository of version 1; return False if it already has this release's format. `place`: its local
    folder."""
    with _alone(folder, place) as line:
        if line != LINE:
            with _locked(folder, place, line):
                state = _read_state(folder, place)
                _move_away(folder, line)
                make_checkpoint(folder, state, randomness)
                create(folder, record_path(state.version), _record_of(state), randomness)
                _replace_format(folder, LINE, randomness)
        if folder.exists(LOCK):
            folder.rename(LOCK, f"{OLD}/{LOCK}")
        return line != LINE


def undo(folder: Transport, place: str, randomness: Callable[[int], bytes]) -> None:
    """Undo the upgrade of a repository of version 1."""
    with _alone(folder, place) as line:
        if not folder.exists(f"{OLD}/{ROOT}"):
            raise NoSuchRepository(place)
        if line == LINE:
            _claim_next(folder, place, randomness)
            _replace_format(folder, folder.get(f"{OLD}/{FORMAT}"), randomness)
        _clear(folder)
        for name in (LOCK, TABLES, LOG, ROOT):  # The root is last: from then on an older server finds the repository.
            if folder.exists(f"{OLD}/{name}"):
                folder.rename(f"{OLD}/{name}", name)
        folder.perform([SyncDirectory(""), SyncDirectory(OLD)])


# -- locks


@contextlib.contextmanager
def _flock(path: str) -> Iterator[None]:
    with open(path, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TransportFailed(path, IN_USE) from None
        yield


@contextlib.contextmanager
def _alone(folder: Transport, place: str) -> Iterator[bytes]:
    """Exclude other upgrades during the block. Yield the line of the format file, which is of version 1 or of this
    release."""
    if not folder.exists(FORMAT):
        raise NoSuchRepository(place)
    with _flock(f"{place}/{FORMAT}"):
        line = folder.get(FORMAT)
        if not is_old(line):
            parse_format(line)
        yield line


@contextlib.contextmanager
def _locked(folder: Transport, place: str, line: bytes) -> Iterator[None]:
    """During the block, hold the lock that the format file names. If this process dies, a lock folder remains, and the
    next upgrade takes it over."""
    if b"swap=folder" not in line:
        with _flock(f"{place}/{LOCK}"):
            yield
        return
    own, held = f"{LOCK}/{NONCE}", f"{LOCK}/held"
    if not folder.exists(f"{held}/{NONCE}"):
        for path in (LOCK, own, f"{own}/{NONCE}"):
            with contextlib.suppress(FileExists):
                folder.make_directory(path)
        try:
            folder.rename(own, held)
        except DirectoryNotEmpty:
            raise TransportFailed(f"{place}/{LOCK}", IN_USE) from None
    try:
        yield
    finally:
        with contextlib.suppress(TransportError):
            folder.rename(f"{held}/{NONCE}", own)
            for path in (held, own):
                folder.remove_directory(path)


# -- files


def _move_away(folder: Transport, line: bytes) -> None:
    """Move the files of version 1 away, delete the results of an earlier try, and create the folders of this
    release."""
    for path in (LOST, OLD, *(name for name in MOVED[1:] if not folder.exists(f"{OLD}/{name}"))):
        with contextlib.suppress(FileExists):
            folder.make_directory(path)
    with contextlib.suppress(FileExists):
        folder.put(f"{OLD}/{FORMAT}", [line])
    for name in MOVED:
        if not folder.exists(f"{OLD}/{name}"):
            folder.rename(name, f"{OLD}/{name}")
    folder.perform([SyncDirectory(path) for path in (OLD, LOST, "")])
    _clear(folder)
    for path in FOLDERS:
        with contextlib.suppress(FileExists):
            folder.make_directory(path)
    for name in folder.list_directory(INCOMING):  # These are leftovers of dead writers.
        folder.rename(f"{INCOMING}/{name}", f"{OLD}/{INCOMING}-{name}")


def _clear(folder: Transport) -> None:
    """Delete records and checkpoints. This must be called only while `format` is of version 1."""
    for path in (CHECKPOINTS, LOG) if folder.exists(f"{OLD}/{LOG}") else ():
        with contextlib.suppress(NoSuchFile):
            for name in folder.list_directory(path):
                folder.withdraw(f"{path}/{name}", f"{INCOMING}/{name}.withdrawn")
            folder.remove_directory(path)


def _replace_format(folder: Transport, line: bytes, randomness: Callable[[int], bytes]) -> None:
    temporary = f"{INCOMING}/{randomness(8).hex()}.format"
    folder.perform([SyncDirectory(""), Put(temporary, line), Rename(temporary, FORMAT), SyncDirectory("")])


def _claim_next(folder: Transport, place: str, randomness: Callable[[int], bytes]) -> None:
    """Publish a record with the number after that of the upgrade, so that no server can change the repository any
    more."""
    number = _decode(folder.get(f"{OLD}/{ROOT}")).version + 1
    first, claim = record_path(number), record_path(number + 1)
    content = encode_record(Record(number=number + 1, parent=NOTHING, time=0))
    if folder.exists(first):  # Else both numbers may be free again because a clean-up deleted the records.
        with contextlib.suppress(FileExists):
            create(folder, claim, content, randomness)
    if not folder.exists(first) or folder.get_published(claim) != content:
        raise TransportFailed(place, "it was changed since its upgrade, so the upgrade cannot be undone")


# -- the content of the root


def _decode(content: bytes) -> _Root:
    try:
        payload, check = _FILE.decode(content)
        if blake2b(payload, digest_size=16).digest() != check:
            raise CorruptFile(ROOT, 0, "the content does not match its check")
        root = _ROOT.decode(payload)
    except msgspec.DecodeError as error:
        raise CorruptFile(ROOT, 0, str(error)) from error
    check_features((*root.read_features, *root.write_features))
    return root


def _read_state(folder: Transport, place: str) -> State:
    """Return the content of the root, as the state after the record of the upgrade."""

    def read(path: str) -> bytes:
        """Read a file from its old path, or from the path to which it was moved."""
        found = Get(path), Get(f"{OLD}/{path}")
        folder.perform(found)
        return found[1].content if found[0].result is None else found[0].result

    if folder.exists(ROOT) and folder.exists(f"{OLD}/{ROOT}"):
        raise CorruptFile(ROOT, 0, f"{OLD}/{ROOT} exists, too: move one of them away")
    try:
        root = _decode(read(ROOT))
    except NoSuchFile:
        raise NoSuchRepository(place) from None
    dropped = dict(_entries(root, "dropped", read)) if "dropped" in root.tables else {}
    history = _history(root, read)
    state = State(root.version + 1, b"", history=history, settings_version=root.settings_version)
    content = _record_of(state)
    state = replace(
        state,
        hash=hash_of(content),
        dropped={
            name: Dropped(msgspec.msgpack.decode(said)[0], state.version)
            for name, said in dropped.items()
            if len(name) == NAME  # The name of a log file is shorter.
        },
    )
    if root.deleted:
        return state
    tables = {name: table for name, table in root.tables.items() if name != "dropped"}
    return replace(
        state,
        incarnation=root.incarnation,
        vcs=root.vcs,
        kinds=root.kinds,
        packs=root.packs,
        settings=root.settings,
        tables={
            name: Table(table.kind).changed((key, None, value) for key, value in _entries(root, name, read))
            for name, table in tables.items()
        },
    )


def _record_of(state: State) -> bytes:
    """Return the record of the upgrade. It has no entries, because the whole state is in its checkpoint."""
    newest = next(reversed(state.history), None)
    return encode_record(Record(number=state.version, parent=NOTHING, time=0 if newest is None else newest.time))


def _entries(root: _Root, name: str, read: Callable[[str], bytes]) -> list[tuple[bytes, bytes]]:
    """Return the entries of a table, in key order: those in the root or its file, combined with later changes."""
    table = root.tables[name]
    found = dict(table.entries)
    if table.file is not None:
        path = f"tables/{table.file[0].hex()}"
        content = _checked(read(path), table.file[2], path)
        (count,) = struct.unpack_from("<I", content, 12)
        offsets = struct.unpack_from(f"<{count + 1}I", content, 16)
        entries = content[16 + 4 * (count + 1) : -NAME]
        for start, end in pairwise(offsets):  # Each entry is a check, the length of its key, the key and the value.
            split = start + 6 + int.from_bytes(entries[start + 4 : start + 6], "little")
            found[entries[start + 6 : split]] = entries[split:end]
    for key, new in root.changes.get(name, {}).items():
        if new is None:
            found.pop(key, None)
        else:
            found[key] = new
    return sorted(found.items())


def _history(root: _Root, read: Callable[[str], bytes]) -> History:
    """Return the entries in the root and in the files of its log, as far back as they can be read."""
    entries, since = list(root.log), root.log_since
    for file in reversed(root.log_files):
        path = f"log/{file.last}-{file.name.hex()}"
        try:
            entries = [*_LOG.decode(_checked(read(path), file.hash, path)[16:-NAME]), *entries]
        except (CorruptFile, NoSuchFile, msgspec.DecodeError):
            since = max(since, file.time + CLOCK_MARGIN)
            break
    logged = [entry.now() for entry in entries]
    if not since:
        return History(logged)
    oldest = (logged[0].version, logged[0].mark) if logged else (root.version, root.log_mark)
    return History(logged, Horizon(*oldest, since))


def _checked(content: bytes, check: bytes, path: str) -> bytes:
    """Check that a file ends with the hash `check` of the bytes before the hash, and return its content."""
    if content[-NAME:] != check or blake2b(content[:-NAME], digest_size=NAME).digest() != check:
        raise CorruptFile(path, 0, "the content does not match its check")
    return content
