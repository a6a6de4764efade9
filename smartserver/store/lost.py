"""The changes in a repository that its log does not have: found without changing anything. `recovery` restores them,
and `verify` says what is damaged.

The state that recovery continues from is the newest one that checkpoints and records give. It need not be the one that
servers answer from: the record of its checkpoint may be missing. The records that it follows, back to the first that is
missing, are its *line*. *Misfits* are damaged records and checkpoints, those of another line, and those above the
state. Other records below the line are no misfits: they were not deleted yet, or a backup brought them.

The entries of records outside the line, of records that an earlier recovery moved to `lost/`, and of the trailers of
packs that nothing names are *lost changes*, unless their requests are in the state's entries. A record was published,
so its change was made; one that is as old as entries which the state has forgotten tells of nothing lost. A trailer
alone does not say that: the change may never have been acknowledged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter

from smartserver.errors import CorruptFile, NoSuchRepository
from smartserver.store.checkpoint import checkpoint_path, decode_checkpoint, encode_checkpoint, newest_first
from smartserver.store.creation import Remains
from smartserver.store.format import CHECKPOINTS, FORMAT, LOG, LOST, PACKS, parse_format
from smartserver.store.open_pack import pack_path
from smartserver.store.record import NOTHING, Entry, PackEntry, Record, decode_record, hash_of, numbers_of, record_path
from smartserver.store.state import Misfit, State, first_state
from smartserver.store.trailer import trailer_of
from smartserver.store.upkeep import packs_in
from transports.base import Transport
from transports.errors import NoSuchFile
from transports.steps import Get, GetPublished, ListDirectory

RECOVERED = b"recovered "
"""The begin of the outcomes of a recovery's entry; the incarnations before and after it follow."""


@dataclass(eq=False)
class LostChange:
    """A change that is written down and that the log does not have."""

    entry: Entry
    number: int
    """The number of its record, or of the one after the state that it was judged on."""
    time: int
    """Milliseconds since the epoch; of a pack alone, when its file was written."""
    made: bool
    """True if a record says it."""
    elsewhere: bool = False
    """True if it was made in another repository at the same place."""
    pack: tuple[str, int] | None = None
    """Path and length of the pack that it brought, where that is there."""

    @property
    def id(self) -> str:
        """The name by which a person chooses it."""
        return self.entry.request.hex()[:8]


@dataclass
class Findings:
    """The damage of a repository's log, and the changes that it does not have."""

    state: State
    """The state that recovery continues from."""
    is_served: bool
    """True if servers answer from that state, and change it."""
    misfits: dict[str, str] = field(default_factory=dict)
    """By the paths of records and checkpoints, the highest numbers first: why each is one, with its path."""
    missing: str = ""
    """The path of a record without which no older checkpoint can be used."""
    changes: list[LostChange] = field(default_factory=list)
    """In the order in which they were made, as far as that is known."""
    joined: list[LostChange] = field(default_factory=list)
    """Packs that a repack made and nothing names: their segments may be those of changes above."""
    gone: list[PackEntry] = field(default_factory=list)
    """Packs that the state names and that are not there."""

    @property
    def damages(self) -> list[str]:
        """The damage of the log, in words."""
        return [*self.misfits.values(), *([f"{self.missing} is missing"] if self.missing else [])]

    @property
    def needs_repair(self) -> bool:
        """True if something of the state, or of its log, is not as it should be."""
        return bool(self.damages or self.gone) or not self.is_served

    @property
    def made(self) -> list[LostChange]:
        """The changes that were surely made."""
        return [change for change in self.changes if change.made]

    def __bool__(self) -> bool:
        """True if there is anything to repair or to restore."""
        return self.needs_repair or bool(self.changes)


def find(folder: Transport, path: str = "") -> Findings:
    """Look for changes that a repository's log does not have. `path`: the repository's, for errors.

    Raises:
        NoSuchRepository: there is none, nor anything left of one.
    """
    # Checkpoints before records: that of each is listed then.
    line, names = GetPublished(FORMAT), {name: ListDirectory(name) for name in (CHECKPOINTS, LOG, LOST, PACKS)}
    remains = Remains("")
    folder.perform([*names.values(), line, *remains.steps])
    if line.result is not None:
        parse_format(line.result)
    elif remains.found is None:
        raise NoSuchRepository(path)
    listed = {name: step.result or [] for name, step in names.items()}
    # From the newest down: they are deleted in rising order, so above one that is read none was missing.
    numbers = sorted(numbers_of(listed[LOG]), reverse=True)
    contents = _read(folder, map(record_path, numbers))
    records = {number: contents[record_path(number)] for number in numbers if record_path(number) in contents}
    files = {name: Get(checkpoint_path(*name)) for name in newest_first(listed[CHECKPOINTS])}
    folder.perform(list(files.values()))
    walk = _Walk(records, {name: file.result for name, file in files.items() if file.result is not None})
    found = walk.findings(is_marked=line.result is not None)
    state = found.state
    lost = _read(folder, [f"{LOST}/{name}" for name in listed[LOST] if name.partition(".")[0].isdecimal()])
    changes: dict[bytes, LostChange] = {}
    outside = [content for number, content in records.items() if number not in walk.line]
    said = _of_records([*outside, *lost.values()], state.history.horizon.version)
    for change in chain(said, _of_packs(folder, found, listed[PACKS])):
        entry = change.entry  # A deletion is not carried out again.
        if (entry.changes or entry.pack) and not entry.deletes and state.history.find(change.entry.request) is None:
            first = changes.setdefault(change.entry.request, change)
            first.pack = first.pack or change.pack
    found.changes = sorted(changes.values(), key=attrgetter("elsewhere", "number"))
    if not (state.exists or found):
        raise NoSuchRepository(path)
    if state.hash == NOTHING and not any(change.entry.begins for change in found.changes):
        why = "no checkpoint and no record can be read, and no pack says how the repository began: restore a backup"
        raise CorruptFile(LOG, 0, why)
    return found


def _read(folder: Transport, paths: Iterable[str]) -> dict[str, bytes]:
    steps = [GetPublished(path) for path in paths]
    folder.perform(steps)
    return {step.path: step.result for step in steps if step.result is not None}


class _Walk:
    """All records and checkpoints, read in the order of their numbers."""

    def __init__(self, records: Mapping[int, bytes], checkpoints: Mapping[tuple[int, bytes], bytes]) -> None:
        self._records = records
        self._parents: dict[int, bytes] = {}
        """The hash that each whole record names as that of the one before it."""
        self._saved: set[tuple[int, bytes]] = set()
        """The checkpoints that are whole and say what the records before them do."""
        self._misfits: dict[str, str] = {}
        self.state = first_state(NOTHING)
        """The newest."""
        states: dict[bytes, State] = {}
        for number in sorted({*records, *(version for version, _ in checkpoints)}):
            states = self._follow(number, states)
            for name in [checkpoint for checkpoint in checkpoints if checkpoint[0] == number]:
                self._compare(name, checkpoints[name], states)
            if states:
                self.state = states.get(hash_of(records.get(number, b"")), next(iter(states.values())))
        self.line: dict[int, bytes] = {}
        """The hashes of the records that the newest state follows, by number."""
        self._below, self._parent = self.state.version, self.state.hash
        while self._below in self._parents and hash_of(records[self._below]) == self._parent:
            self.line[self._below] = self._parent
            self._below, self._parent = self._below - 1, self._parents[self._below]

    def _follow(self, number: int, states: Mapping[bytes, State]) -> dict[bytes, State]:
        """The state after a record, where that before it is one of these; by its hash."""
        content, path = self._records.get(number, b""), record_path(number)
        record_hash = hash_of(content)
        try:
            if number in self._records:
                record = decode_record(content, path)
                self._parents[number] = record.parent
                if (number, record.number, record.parent) == (1, 1, NOTHING):
                    return {record_hash: first_state(record_hash)}
                if record.parent in states:
                    return {record_hash: states[record.parent].after(record, record_hash)}
        except CorruptFile as error:
            self._misfits[path] = str(error)
        except Misfit as error:
            self._misfits[path] = f"{path}: {error}"
        return {}

    def _compare(self, name: tuple[int, bytes], content: bytes, states: dict[bytes, State]) -> None:
        """Note what is wrong with a checkpoint, else that its state is one of these."""
        path = checkpoint_path(*name)
        try:
            said = decode_checkpoint(content, path)
        except CorruptFile as error:
            self._misfits[path] = str(error)
            return
        if (said.version, said.hash) != name:
            self._misfits[path] = f"{path}: it is of another record {name[0]}"
        elif said.hash in states and encode_checkpoint(states[said.hash]) != content:
            self._misfits[path] = f"{path}: it is not what the records before it say"
        else:
            states[said.hash] = said
            self._saved.add(name)

    def findings(self, *, is_marked: bool) -> Findings:
        """The findings about the log. `is_marked`: whether the folder's `format` is there."""
        version, misfits = self.state.version, self._misfits
        for number in self._records:
            if number > version:
                misfits.setdefault(record_path(number), f"{record_path(number)} does not follow change {version}")
        for number, record_hash in self._saved:
            if self.line.get(number, record_hash) != record_hash:
                path = checkpoint_path(number, record_hash)
                misfits[path] = f"{path}: it is of another record {number}"
        starts = sum(record_id in self._saved for record_id in self.line.items())
        below, missing = record_path(self._below), ""
        if self._below in self._records:
            misfits.setdefault(below, f"{below}: it is of another line")
        elif min(self._records, default=version) < self._below and starts < 2:
            # Below a checkpoint backups leave gaps, and so do clean-ups that were cut below the last but one.
            least = self._below + 1, self.line.get(self._below + 1)
            missing = "" if {least, (self._below, self._parent)} & self._saved else below
        # Checkpoints before records: these alone tell a server that no change may follow.
        order = sorted(misfits, key=lambda path: (path.startswith(CHECKPOINTS), path), reverse=True)
        is_served = is_marked and (starts > 0 or 1 in self.line)
        return Findings(self.state, is_served, {path: misfits[path] for path in order}, missing)


def _of_records(contents: Iterable[bytes], horizon: int) -> list[LostChange]:
    """The changes of the readable records after a number, in the order of their numbers."""
    records: list[Record] = []
    for content in contents:
        with contextlib.suppress(CorruptFile):
            records.append(decode_record(content, LOST))
    records.sort(key=attrgetter("number"))
    later = [record for record in records if record.number > horizon]
    return [LostChange(entry, record.number, record.time, made=True) for record in later for entry in record.entries]


def _of_packs(folder: Transport, found: Findings, names: list[str]) -> Iterator[LostChange]:
    """The changes in trailers of packs that the state does not name; joined and missing packs are noted."""
    state, there = found.state, packs_in(folder, names)
    named = {pack.name for pack in state.packs}
    found.gone = [pack for pack in state.packs if pack.name not in {pack_file.name for pack_file in there}]
    incarnations = {state.incarnation}
    for recovered in [entry.outcomes for entry in reversed(state.history) if entry.outcomes.startswith(RECOVERED)]:
        if recovered[-16:] in incarnations:
            incarnations.add(recovered[-32:-16])
    for pack in there:
        if pack.name in named or pack.name in state.dropped:
            continue
        path = pack_path(pack.name)
        with contextlib.suppress(NoSuchFile):
            length, trailer = trailer_of(folder, path, pack.size)
            if trailer is None:
                continue
            elsewhere = state.exists and trailer.incarnation not in incarnations
            entry = trailer.entry or Entry(pack.name, "recover", b"")
            time, place = int(pack.modified * 1000), (path, length)
            change = LostChange(entry, trailer.version + 1, time, made=False, elsewhere=elsewhere, pack=place)
            if trailer.entry is None:
                found.joined.append(change)
            else:
                yield change
