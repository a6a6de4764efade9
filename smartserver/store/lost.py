"""Finds the changes in a repository that its log lacks, without changing anything. `recovery` restores these changes,
and `verify` reports the damage.

Recovery continues from the newest state that can be computed from checkpoints and records. Servers may answer from
another one: the record of a checkpoint may be missing. The records that the state follows, back to the first missing
one, are its *line*. *Misfits* are damaged records and checkpoints, those of another line, and those above the state.
Other records below the line are no misfits: they were not deleted yet, or a backup restored them.

*Lost changes* are the entries of records outside the line, of records that an earlier recovery moved to `lost/`, and of
trailers of unnamed packs. They are not lost if their requests are in the state's entries. A record was published, so
its change was made. A record as old as entries that the state has dropped is not lost. A trailer alone does not prove
that the change was made: it may never have been acknowledged.
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
"""The prefix of the outcomes in a recovery's entry; the incarnations before and after the recovery follow."""


@dataclass(eq=False)
class LostChange:
    """A change in a record or trailer that the log lacks."""

    entry: Entry
    number: int
    """The number of the change's record. Without a record, the number after the state on which the change was
    judged."""
    time: int
    """The time of the change's record, in milliseconds since the epoch. Without a record, the time of the file of its
    pack."""
    made: bool
    """True if a record has the change, so that it was certainly committed."""
    elsewhere: bool = False
    """True if the change was made in another repository, which was at the same path before."""
    pack: tuple[str, int] | None = None
    """The path and length of the pack that the change added, if the pack exists."""

    @property
    def id(self) -> str:
        """The short name by which a user selects the change."""
        return self.entry.request.hex()[:8]


@dataclass
class Findings:
    """The damage of a repository's log, and the changes that it lacks."""

    state: State
    """The state from which recovery continues."""
    is_served: bool
    """True if servers use this state too; False if they use another or none."""
    misfits: dict[str, str] = field(default_factory=dict)
    """For each misfit, by its path, a message with the path and the reason; the highest numbers first."""
    missing: str = ""
    """The path of the newest missing record, if servers cannot use an older checkpoint without it; else empty."""
    changes: list[LostChange] = field(default_factory=list)
    """The lost changes, in the order in which they were made, as far as known."""
    joined: list[LostChange] = field(default_factory=list)
    """The packs that a repack created and that the state does not name. They may have segments of lost changes."""
    gone: list[PackEntry] = field(default_factory=list)
    """The packs that the state names and that are missing."""

    @property
    def damages(self) -> list[str]:
        """A message for each damage of the log."""
        return [*self.misfits.values(), *([f"{self.missing} is missing"] if self.missing else [])]

    @property
    def needs_repair(self) -> bool:
        """True if the log is damaged, the state is not served, or a pack is missing."""
        return bool(self.damages or self.gone) or not self.is_served

    @property
    def made(self) -> list[LostChange]:
        """The lost changes that were certainly committed."""
        return [change for change in self.changes if change.made]

    def __bool__(self) -> bool:
        """Tell whether the repository needs repair or has changes to restore."""
        return self.needs_repair or bool(self.changes)


def find(folder: Transport, path: str = "") -> Findings:
    """Find damage of a repository's log, and changes that the log lacks. `path`: the path of the repository, for
    errors.

    Raises:
        NoSuchRepository: the folder has neither a repository nor the remains of one.
        CorruptFile: no readable file has the creation of the repository.
    """
    # Checkpoints are listed before records, so the record of each listed checkpoint is listed too.
    line, names = GetPublished(FORMAT), {name: ListDirectory(name) for name in (CHECKPOINTS, LOG, LOST, PACKS)}
    remains = Remains("")
    folder.perform([*names.values(), line, *remains.steps])
    if line.result is not None:
        parse_format(line.result)
    elif remains.found is None:
        raise NoSuchRepository(path)
    listed = {name: step.result or [] for name, step in names.items()}
    # Records are deleted in rising order and read from the newest down, so above one that is read none is missing.
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
    """Computes the newest state from all records and checkpoints, in the order of their numbers, and finds misfits."""

    def __init__(self, records: Mapping[int, bytes], checkpoints: Mapping[tuple[int, bytes], bytes]) -> None:
        self._records = records
        self._parents: dict[int, bytes] = {}
        """`Record.parent` of each undamaged record, by number."""
        self._saved: set[tuple[int, bytes]] = set()
        """The checkpoints that are undamaged and agree with the records before them."""
        self._misfits: dict[str, str] = {}
        self.state = first_state(NOTHING)
        """The newest state that can be computed from checkpoints and records."""
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
        """Return the state after a record, by the record's hash; empty if the state before it is not in `states`.
        Add a damaged record to the misfits."""
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
        """Record the fault of a checkpoint, or add its state to `states`."""
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
        """Return the damage of the log. `is_marked`: True if the folder has its `format` file."""
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
            # Records may be missing below a checkpoint in a backup, and below the floor after an interrupted clean-up.
            least = self._below + 1, self.line.get(self._below + 1)
            missing = "" if {least, (self._below, self._parent)} & self._saved else below
        # Checkpoints come before records: only records make a running server refuse changes, so they are moved last.
        order = sorted(misfits, key=lambda path: (path.startswith(CHECKPOINTS), path), reverse=True)
        is_served = is_marked and (starts > 0 or 1 in self.line)
        return Findings(self.state, is_served, {path: misfits[path] for path in order}, missing)


def _of_records(contents: Iterable[bytes], horizon: int) -> list[LostChange]:
    """Return the changes of the readable records after number `horizon`, in the order of their numbers."""
    records: list[Record] = []
    for content in contents:
        with contextlib.suppress(CorruptFile):
            records.append(decode_record(content, LOST))
    records.sort(key=attrgetter("number"))
    later = [record for record in records if record.number > horizon]
    return [LostChange(entry, record.number, record.time, made=True) for record in later for entry in record.entries]


def _of_packs(folder: Transport, found: Findings, names: list[str]) -> Iterator[LostChange]:
    """Yield the changes in the trailers of packs that the state does not name. Add joined packs and missing packs to
    `found`."""
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
