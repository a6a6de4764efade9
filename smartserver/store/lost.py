"""What lies in a repository that its log does not have: found without changing anything; `recovery` restores it.

The state that recovery continues from is the newest one that checkpoints and records give. It need not be the one that
servers answer from: the record of its checkpoint may be missing. Records that it does not follow are *misfits*: damaged
ones, those of another line, and those above or below a gap. So are checkpoints above it, of another line, or damaged.

The entries of misfits, of records that an earlier recovery moved to `lost/`, and of the trailers of packs that nothing
names are *lost changes*, unless their requests are in the state's entries. A record was published, so its change was
made. A trailer alone does not say that: the change may never have been acknowledged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter

from smartserver.errors import CorruptFile, NoSuchRepository
from smartserver.store.checkpoint import checkpoint_path, decode_checkpoint, newest_first
from smartserver.store.format import CHECKPOINTS, FOLDERS, FORMAT, LOG, LOST, PACKS, parse_format
from smartserver.store.open_pack import pack_path
from smartserver.store.record import NOTHING, Entry, PackEntry, Record, decode_record, hash_of, record_path
from smartserver.store.remains import Remains
from smartserver.store.state import Misfit, State, first_state
from smartserver.store.trailer import trailer_of
from smartserver.store.upkeep import packs_in
from transports.base import Transport
from transports.errors import NoSuchFile
from transports.steps import Get, GetPublished, ListDirectory

RECOVERED = b"recovered "
"""What begins the outcomes of the entry that a recovery makes; the incarnations before and after it follow."""


@dataclass(eq=False)
class LostChange:
    """A change that is written down and that the log does not have."""

    entry: Entry
    number: int
    """Of its record, or of the one after the state that it was judged on."""
    time: int
    """Milliseconds since the epoch; of a pack alone, when its file was written."""
    made: bool
    """Whether a record says it."""
    elsewhere: bool = False
    """Whether it was made in another repository at the same place."""
    pack: tuple[str, int] | None = None
    """Path and length of the pack that it brought, where that is there."""

    @property
    def id(self) -> str:
        """What a person names it by."""
        return self.entry.request.hex()[:8]


@dataclass
class Findings:
    """What lies in a repository that its log does not have."""

    state: State
    """What recovery continues from."""
    is_served: bool
    """Whether servers answer from that state, and change it."""
    misfits: list[str] = field(default_factory=list)
    """The paths of records and checkpoints, the highest numbers first."""
    changes: list[LostChange] = field(default_factory=list)
    """In the order in which they were made, as far as that is known."""
    joined: list[LostChange] = field(default_factory=list)
    """Packs that a repack made and nothing names: their segments may be those of changes above."""
    gone: list[PackEntry] = field(default_factory=list)
    """Packs that the state names and that are not there."""

    @property
    def needs_repair(self) -> bool:
        """Whether something of the state, or of its log, is not as it should be."""
        return bool(self.misfits or self.gone) or not self.is_served

    @property
    def made(self) -> list[LostChange]:
        """The changes that were surely made."""
        return [each for each in self.changes if each.made]

    def __bool__(self) -> bool:
        """Whether there is anything to repair or to restore."""
        return self.needs_repair or bool(self.changes)


def find(folder: Transport, path: str = "") -> Findings:
    """Look for what a repository's log does not have. `path`: the repository's, for errors.

    Raises:
        NoSuchRepository: there is none, nor anything left of one.
        CorruptFile: no checkpoint or record tells a state, and no trailer how the repository began.
        Unsupported: a file of it is of another release.
        TransportError: the store failed.
    """
    line, names = GetPublished(FORMAT), {name: ListDirectory(name) for name in (*FOLDERS, LOST)}
    remains = Remains("")
    folder.perform([*names.values(), line, *remains.steps])
    if line.result is not None:
        parse_format(line.result)
    elif remains.found is None:
        raise NoSuchRepository(path)
    listed = {name: step.result or [] for name, step in names.items()}
    contents = _read(folder, [f"{LOG}/{name}" for name in listed[LOG] if name.isdecimal()])
    checkpoints = dict(_checkpoints(folder, listed[CHECKPOINTS]))
    records = {int(path.rpartition("/")[2]): content for path, content in contents.items()}
    starts = [each for each in checkpoints.values() if each is not None]
    state = _newest(records, starts) or first_state(NOTHING)
    line_of = _line(state, records)
    is_whole = line.result is not None and all(names[name].result is not None for name in (CHECKPOINTS, LOG, PACKS))
    found = Findings(state, is_served=is_whole and state.version in line_of)
    least = min(line_of, default=0)
    bad = {checkpoint_path(*name): name[0] for name, each in checkpoints.items() if each is None}
    for version, record_hash in checkpoints:
        if version > state.version or (version >= least > 0 and line_of[version] != record_hash):
            bad[checkpoint_path(version, record_hash)] = version
    bad |= {record_path(number): number for number in records if number not in line_of}
    if (state.version, state.hash) in checkpoints:
        bad.pop(checkpoint_path(state.version, state.hash), None)
    # Checkpoints before records: these alone tell a server that no change may follow.
    found.misfits = sorted(bad, key=lambda each: (each.startswith(CHECKPOINTS), bad[each]), reverse=True)
    lost = _read(folder, [f"{LOST}/{name}" for name in listed[LOST] if name.partition(".")[0].isdecimal()])
    changes: dict[bytes, LostChange] = {}
    said = _of_records([*(contents[each] for each in found.misfits if each in contents), *lost.values()])
    for change in chain(said, _of_packs(folder, found, listed[PACKS])):
        if _is_restorable(change.entry) and state.history.find(change.entry.request) is None:
            first = changes.setdefault(change.entry.request, change)
            first.pack = first.pack or change.pack
    found.changes = sorted(changes.values(), key=attrgetter("elsewhere", "number"))
    if not (state.exists or found):
        raise NoSuchRepository(path)
    if state.hash == NOTHING and not any(each.entry.begins for each in found.changes):
        why = "no checkpoint and no record can be read, and no pack says how the repository began: restore a backup"
        raise CorruptFile(LOG, 0, why)
    return found


def _read(folder: Transport, paths: Iterable[str]) -> dict[str, bytes]:
    steps = [GetPublished(path) for path in paths]
    folder.perform(steps)
    return {step.path: step.result for step in steps if step.result is not None}


def _checkpoints(folder: Transport, names: Iterable[str]) -> Iterator[tuple[tuple[int, bytes], State | None]]:
    """Each checkpoint and its state; None where it is damaged."""
    found = newest_first(names)
    files = [Get(checkpoint_path(*each)) for each in found]
    folder.perform(files)
    for name, file in zip(found, files, strict=True):
        state = None
        if file.result is not None:
            with contextlib.suppress(CorruptFile):
                state = decode_checkpoint(file.result, file.path)
            fits = state is not None and (state.version, state.hash) == name
            yield name, state if fits else None


def _newest(records: Mapping[int, bytes], starts: list[State]) -> State | None:
    """The newest state that one of several gives with the records after it; record 1 is one more to start from."""
    with contextlib.suppress(CorruptFile, KeyError):
        first = decode_record(records[1], record_path(1))
        if (first.number, first.parent) == (1, NOTHING):
            starts = [*starts, first_state(hash_of(records[1]))]

    def rank(state: State) -> tuple[int, bool]:
        return state.version, hash_of(records.get(state.version, b"")) == state.hash

    return max((_walk(start, records) for start in starts), key=rank, default=None)


def _walk(state: State, records: Mapping[int, bytes]) -> State:
    """The state after the records that follow a state."""
    with contextlib.suppress(CorruptFile, Misfit, KeyError):
        while True:
            content = records[state.version + 1]
            state = state.after(decode_record(content, record_path(state.version + 1)), hash_of(content))
    return state


def _line(state: State, records: Mapping[int, bytes]) -> dict[int, bytes]:
    """The records that a state follows, by number: their hashes."""
    line: dict[int, bytes] = {}
    number, record_hash = state.version, state.hash
    with contextlib.suppress(CorruptFile, KeyError):
        while hash_of(records[number]) == record_hash:
            parent = decode_record(records[number], record_path(number)).parent
            line[number] = record_hash
            number, record_hash = number - 1, parent
    return line


def _of_records(contents: Iterable[bytes]) -> list[LostChange]:
    """What records say, as far as they can be read, in the order of their numbers."""
    records: list[Record] = []
    for content in contents:
        with contextlib.suppress(CorruptFile):
            records.append(decode_record(content, LOST))
    records.sort(key=attrgetter("number"))
    return [LostChange(entry, each.number, each.time, made=True) for each in records for entry in each.entries]


def _of_packs(folder: Transport, found: Findings, names: list[str]) -> Iterator[LostChange]:
    """What the trailers of packs say that the state does not name; joined packs, and those that are gone, are noted."""
    state, there = found.state, packs_in(folder, names)
    named = {pack.name for pack in state.packs}
    found.gone = [pack for pack in state.packs if pack.name not in {each.name for each in there}]
    incarnations = {state.incarnation}
    for recovered in [each.outcomes for each in reversed(state.history) if each.outcomes.startswith(RECOVERED)]:
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


def _is_restorable(entry: Entry) -> bool:
    """Whether it changed anything; a deletion is not carried out again."""
    return bool(entry.changes or entry.pack) and not entry.deletes
