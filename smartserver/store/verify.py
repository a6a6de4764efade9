"""Reads and checks a whole repository. Damage is reported with file, byte and key instead of being raised. The error of
an unreachable store is raised, because it says nothing about any file, unless damage was found before.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import deque
from collections.abc import Callable, Iterator
from hashlib import blake2b

from smartserver.errors import CorruptFile, InvalidName, MissingRevision, NoSuchRepository, Unsupported, shown
from smartserver.records.model import RefValue
from smartserver.records.system import system_of
from smartserver.store.allowance import Allowance
from smartserver.store.caches import TextCache
from smartserver.store.format import LOG
from smartserver.store.index import Index
from smartserver.store.index_build import IndexBuilder
from smartserver.store.log import Log
from smartserver.store.log_view import Head
from smartserver.store.lost import find
from smartserver.store.model import VerifyReport
from smartserver.store.open_pack import OpenPack, index_path
from smartserver.store.pack import CHUNK, TRAILER
from smartserver.store.quarantine import SMALL
from smartserver.store.record import PackEntry
from smartserver.store.remote import is_remote
from smartserver.store.snapshot import Snapshot, reader
from smartserver.store.summaries import Summaries, summaries_path
from smartserver.store.summarise import Summariser
from smartserver.store.trailer import TAIL, ranges_of, trailer_behind
from smartserver.store.transaction import Transaction
from smartserver.store.verify_packs import SegmentCheck, SegmentReport, check_packs, damage, lineages
from transports.errors import NoSuchFile, PermissionDenied, TransportError, TransportFailed
from transports.steps import ReadRanges

MAX_PROBLEMS = 10_000
"""The most problems that are listed. One more line says that further problems were found."""
LEAST_HOLE = 8
"""The fewest wrong zero bytes inside a file that count as caused by a loss of power. Fewer count as damage."""
NO_INDEX = "missing or damaged: the pack is read in its place each time the repository is opened, which takes longer"
"""The message for an index that must be rebuilt. The rebuilt index is not written to the disk, because it lacks some
lineages, so that its hash may differ from the one in the log."""

MEND = "smartserver verify --mend puts it right"
REMADE = "logs read the records instead; smartserver pack makes it again"

Progress = Callable[[int, int], None]


def verify(log: Log, progress: Progress, allowance: Allowance | None = None) -> VerifyReport:
    """Read and check a whole repository. `progress`: is called with the number of bytes done, and of all bytes.
    `allowance`: is charged for refs and map entries."""
    try:
        head = log.look()
    except (CorruptFile, TransportError) as error:
        return VerifyReport(0, 0, 0, 0, (damage(error),))
    if not head.state.exists and head.damage is not None:
        return VerifyReport(0, 0, 0, 0, (damage(head.damage),))
    if not head.state.exists:
        raise NoSuchRepository(log.path)
    return _Verification(log, head, progress, allowance).run()


class _Verification:
    def __init__(self, log: Log, head: Head, progress: Progress, allowance: Allowance | None) -> None:
        self._folder = log.folder
        self._again = reader(log, TextCache(0))
        self._head = head
        self._state = head.state
        self._progress = progress
        self._allowance = allowance
        self._total = sum(pack.length for pack in head.state.packs)
        self._done = 0
        self._found = SegmentReport()
        self._problems: list[str] = []
        self._lost = 0
        """The number of changes that the log lacks. A push in progress counts as one for a moment."""

    def run(self) -> VerifyReport:
        ghosts = 0
        try:
            ghosts = self._verify()
        except (TransportFailed, PermissionDenied) as lost:
            if not self._problems:
                raise
            self._problems.append(f"{lost}: what comes after that was not checked")
        read = len(self._state.packs), self._found.segments, self._found.records, self._done
        return VerifyReport(*read, tuple(self._problems), ghosts, self._lost)

    def _verify(self) -> int:
        """Check the whole repository. Return the number of ghosts."""
        self._check_log()
        snapshot = self._open()
        self._check_trailers(snapshot)
        found = None
        if len(snapshot.packs) == len(self._state.packs):
            found = check_packs(snapshot, lambda done: self._progress(done, self._total))
        if found is None:
            self._done = 0
            self._check_packs(snapshot)
        else:
            self._found, self._done = found, self._total
        self._check_summaries(snapshot)
        if len(snapshot.packs) == len(self._state.packs):
            self._check_refs(snapshot)
        self._progress(self._total, self._total)
        return sum(snapshot.ordinal(ghost) is None for ghost in set(self._found.ghosts))

    def _check_packs(self, snapshot: Snapshot) -> None:
        # Not an attribute: it calls this object, and a cycle would keep files open until the next garbage collection.
        check = SegmentCheck(snapshot, self._report, self._tell)
        self._found = check.found
        for number, pack in enumerate(snapshot.packs):
            self._check_pack(snapshot, number, pack, check)

    def _check_log(self) -> None:
        problems = [] if self._head.damage is None else [str(self._head.damage)]
        try:
            found = find(self._folder)
            self._lost = len(found.changes)
            problems += found.damages
            deque(self._state.refs().values(), maxlen=0)  # Decode all refs, as they are sent without decoding.
        except CorruptFile as error:
            problems.append(str(error))
        for problem in dict.fromkeys(problems):
            self._report(problem)

    def _open(self) -> Snapshot:
        """Open the snapshot of the state, or of as many of its first packs as can be opened."""
        packs = self._state.packs
        count, problem = len(packs), ""
        while True:
            try:
                state = dataclasses.replace(self._state, packs=packs[:count])
                snapshot = Snapshot.open(self._folder, state, again=self._again)
                for pack in snapshot.packs:
                    pack.index.blocks.check()
                break
            except (CorruptFile, TransportError) as error:
                count, problem = count - 1, damage(error)
        if problem:
            self._report(f"{problem}; {len(packs) - count} of {len(packs)} packs cannot be checked")
        return snapshot

    def _report(self, problem: str) -> None:
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(problem)
        elif len(self._problems) == MAX_PROBLEMS:
            self._problems.append(f"and more: only the first {MAX_PROBLEMS} damages are listed")

    def _check_refs(self, snapshot: Snapshot) -> None:
        try:
            for name, value in snapshot.state.refs().items():
                for tip in value:
                    if snapshot.ordinal(tip.id) is None:
                        self._report(f"{LOG}: ref {name!r} is at {shown(tip.id)}, which is not stored")
            if not self._problems:  # Damaged data proves nothing.
                for line in mend(Transaction("", snapshot, allowance=self._allowance))[0]:
                    self._report(f"{LOG}: {line} ({MEND})")
        except (CorruptFile, TransportError):
            pass  # A damaged file is reported with the log, or with the packs.

    def _check_summaries(self, snapshot: Snapshot) -> None:
        """Read the files of summaries, and compare one revision of each block with its records."""
        if is_remote(self._folder):  # Behind a link, summaries are not read.
            return
        for number, pack in enumerate(snapshot.packs):
            path = summaries_path(pack.entry.name)
            try:
                with contextlib.closing(self._folder.open_read(path)) as file:
                    block = Summariser(snapshot.in_python()).differing(number, Summaries(file, pack.entry))
                if block is not None:
                    self._report(f"{path}: block {block} is not what the records say: {REMADE}")
            except (NoSuchFile, Unsupported):
                continue
            except (CorruptFile, TransportError) as error:
                self._report(f"{damage(error)}: {REMADE}")

    def _check_pack(self, snapshot: Snapshot, number: int, pack: OpenPack, check: SegmentCheck) -> None:
        index, entry = pack.index, pack.entry
        if pack.rebuilt is not None and entry.has_index and not self._is_torn(entry, pack.rebuilt):
            self._report(f"{index_path(entry.name)}: {NO_INDEX}")
        if (index.segments, index.records if entry.has_index else 0) != (entry.segments, entry.records):
            found = f"{index.segments} revisions and {index.records} records"
            why = f"the file has {found}, but the log states {entry.segments} and {entry.records}"
            self._report(damage(CorruptFile(pack.path, 0, why)))
        earlier = snapshot.only(snapshot.packs[:number])
        builder = IndexBuilder(earlier.first_row)
        try:
            digest = blake2b(pack.reader.header, digest_size=TRAILER)
            trailer = pack.reader.trailer()
        except (CorruptFile, TransportError) as error:
            self._report(damage(error))
            return
        self._done += len(pack.reader.header) + len(trailer)
        known = iter(lineages(index))
        for local, content, segment in check.segments(number):
            digest.update(content)
            self._done += len(content)
            if self._done // CHUNK != (self._done - len(content)) // CHUNK:
                self._tell()
            if segment is not None:
                builder.add(index.segment_offsets[local], segment, known)
        if digest.digest() != trailer or trailer != entry.hash:
            why = "the pack's bytes, the hash it ends with and the log's are not the same"
            self._report(damage(CorruptFile(pack.path, pack.reader.end, why)))
        elif builder.segments == index.segments and pack.rebuilt is None:
            self._compare(pack, builder)

    def _check_trailers(self, snapshot: Snapshot) -> None:
        """Read and check the trailers of all packs, in one call of the store if they are short."""
        tails = [ReadRanges(pack.path, [(pack.entry.length, TAIL)]) for pack in snapshot.packs]
        with contextlib.suppress(NoSuchFile):  # A pack was joined and deleted meanwhile.
            self._folder.perform(tails)
            for pack, tail in zip(snapshot.packs, tails, strict=True):
                try:
                    read = ranges_of(self._folder, pack.path)
                    trailer = trailer_behind(tail.result[0], read, pack.entry.length, pack.path)
                    said = None if trailer is None or trailer.entry is None else trailer.entry.pack
                    if said is not None and said.name != pack.entry.name:
                        raise CorruptFile(pack.path, pack.entry.length, f"the trailer of the pack {said.name.hex()}")
                except CorruptFile as error:
                    self._report(damage(error))

    def _tell(self) -> None:
        self._progress(self._done, self._total)

    def _is_torn(self, entry: PackEntry, whole: bytes) -> bool:
        """Tell whether a loss of power explains the damage of an unsynced index: the index is cut off, or partly
        zeros."""
        if entry.index_length > SMALL:
            return False
        try:
            found = self._folder.get(index_path(entry.name))
        except TransportError:
            return False
        differing = [at for at, byte in enumerate(found) if whole[at : at + 1] != bytes([byte])]
        if not differing:
            return len(found) < len(whole)
        is_hole = len(differing) >= LEAST_HOLE and not any(found[at] for at in differing)
        first, last = differing[0], differing[-1]
        return len(found) < len(whole) or is_hole or not any(found[: last + 1]) or not any(found[first:])

    def _compare(self, pack: OpenPack, builder: IndexBuilder) -> None:
        index = pack.index
        (last,) = deque(builder.finish(pack.entry.length, pack.entry.hash), maxlen=1)
        if last.endswith(index.hash):
            return
        built = Index.of(b"".join(builder.finish(pack.entry.length, pack.entry.hash)), index.name)
        for row in range(min(built.records, index.records)):
            if (built.digest(row), built.at(row)) != (index.digest(row), index.at(row)):
                self._report(f"{index.name}: row {row} differs from the pack")
                return
        self._report(f"{index.name}: not the index of its pack")


SHOWN = 80
"""The most characters of a tip's attributes in a message."""

MOST = 1 << 16
"""The most entries that one request removes, because the log stores the old value of each entry."""


def mend(transaction: Transaction) -> tuple[list[str], bool]:
    """Repair data that an earlier release stored without proof, as much as one request may change. Return a line for
    each repair, and True if more data must be repaired. Attributes of tips are proved again, a map of the wrong kind
    gets the system's kind, and entries that are not allowed are removed."""
    if transaction.snapshot is not None:
        transaction.allowance.reads(*transaction.snapshot.extent)
    lines = list(_mend_refs(transaction))
    left = MOST
    for name in transaction.maps():
        faults = _wrong_entries(transaction, name)
        removed = list(faults)[: max(left, 0)]
        if removed:
            count = f"{len(removed)} of {len(faults)}" if len(removed) < len(faults) else f"{len(faults)}"
            why = f"{shown(removed[0])}: {faults[removed[0]]}"
            lines.append(f"the map {name!r} has entries that it cannot have: {count}, as {why}")
        transaction.entries.setdefault(name, {}).update(dict.fromkeys(removed))
        left -= len(faults)
        lines += _mend_kind(transaction, name, is_empty=left >= 0)
    return lines, left < 0


def _mend_refs(transaction: Transaction) -> Iterator[str]:
    refs = {
        name: value
        for name, value in transaction.refs().items()
        if all(transaction.is_stored(tip.id) for tip in value)  # `verify` reports a missing tip as damage.
    }
    for name, value in transaction.tips.values(refs, refs, trusts_stored=False).items():
        if value != refs[name]:
            transaction.changes[name] = value
            yield f"the ref {shown(name)} has {_said(refs[name])}; what is stored proves {_said(value)}"


def _said(value: RefValue) -> str:
    said = [shown(tip.attributes)[:SHOWN] + (" (closed)" if tip.closed else "") for tip in value]
    return f"the attributes {', '.join(attributes or 'none' for attributes in said)}"


def _wrong_entries(transaction: Transaction, name: str) -> dict[bytes, str]:
    """Return the keys of the entries that a map must not have, each with the reason. If the system has no such map,
    these are all its entries."""
    system = system_of(transaction.vcs)
    known = system.maps.get(name)
    found = {}
    for key, value in transaction.map(name).items():
        transaction.charge(1)
        try:
            if known is None:
                raise InvalidName(key, f"a repository of {system.name} has no such map")
            if known.of_refs != (b"\0" in key):
                raise InvalidName(key, f"it belongs to {'no' if known.of_refs else 'a'} ref")
            transaction.check_entry(name, key, value)
        except (InvalidName, MissingRevision) as error:
            found[key] = str(error)
    return found


def _mend_kind(transaction: Transaction, name: str, *, is_empty: bool) -> Iterator[str]:
    """Correct the declared kind of a map. If the system has no such map, remove the map if it `is_empty`."""
    system = system_of(transaction.vcs)
    known = system.maps.get(name)
    declared = transaction.declared_kind(name)
    if known is None and is_empty:
        transaction.declared[name] = None
        yield f"the map {name!r} is none of {system.name}"
    elif known is not None and declared != known.kind:
        transaction.declared[name] = known.kind
        yield f"the map {name!r} is declared {declared}; it is {known.kind}"
