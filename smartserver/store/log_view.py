"""`LogView`: reads the log of one repository. `log` changes the log, and has the theory of operation."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from smartserver.errors import CorruptFile, NoSuchRepository
from smartserver.store.checkpoint import Since, checkpoint_path, decode_checkpoint, newest_first
from smartserver.store.format import CHECKPOINTS, FOLDERS, FORMAT, LOG, parse_format
from smartserver.store.record import NOTHING, Record, decode_record, hash_of, is_record, numbers_of, record_path
from smartserver.store.remote import is_remote
from smartserver.store.state import Misfit, State, first_state
from transports.base import Capability, Step, Transport
from transports.errors import TransportError
from transports.steps import Get, GetPublished, GetStat, ListDirectory

TRIES = 3
"""The most attempts to open a state whose files were deleted meanwhile, or to publish a record whose outcome is
unclear."""
AHEAD = 32
"""The number of records that are read at once if there may be many new ones."""

log = logging.getLogger("smartserver")


@dataclass(frozen=True, slots=True)
class Head:
    """The newest state of a repository."""

    state: State
    damage: CorruptFile | None = None
    """The damage that prevents all further changes, such as a next record that is damaged or belongs to another line of
    changes; None if the log is undamaged."""

    @property
    def live(self) -> State | None:
        """The state of the repository; None if the repository does not exist, as after a deletion."""
        return self.state if self.state.exists else None


NOWHERE = Head(State(0, NOTHING))
"""The head of a place where no repository was ever created."""


Perform = Callable[[Sequence[Step]], None]
"""A function that performs steps, as `Transport.perform` does."""


class LogView:
    """Reads the log of the repository in `folder`. Several threads may use it at once."""

    def __init__(self, folder: Transport, path: str) -> None:
        """`path`: the path of the repository, for errors."""
        self.folder = folder
        self.path = path
        self._guard = threading.Lock()
        self._head: Head | None = None
        self.since = Since()
        """The number and sizes of the records since the last checkpoint."""
        self._connection = 0
        """The number of the connection to the store through which the head was read."""
        self._listed = False
        """True once the log's folders were listed and had no file of a change after the head."""
        self.lacks_folders = False
        """True if a folder was missing at the first look: a copy of a store may lack empty folders."""

    # -- looking

    def look(self, perform: Perform | None = None, *, has_successor: bool = False) -> Head:
        """Return the newest head. `perform`: is used in place of the folder for the first steps, when the log of a
        remote store is opened. `has_successor`: True if a record is known to follow the head.

        Raises:
            NoSuchRepository: no repository was ever created here.
        """
        with self._guard:
            for _ in range(TRIES):
                warm = self._head
                try:
                    # Behind a link `_read_on` asks for two records at once: a trip less if the head is stale.
                    if warm is not None and not (has_successor or is_remote(self.folder)) and self.still(warm):
                        return warm
                    head = self._open(perform) if warm is None else self._read_on(warm.state)
                except TransportError:
                    self._head = None
                    raise
                if self.folder.connections != self._connection:
                    head = None
                # A head with damage is opened once more from the disk before the damage counts, and at each later look.
                self._head = None if head is None or head.damage is not None else head
                if head is not None and (head.damage is None or warm is None):
                    return head
        why = f"record 1, and each checkpoint with its record, are missing, or were deleted {TRIES} times meanwhile"
        raise CorruptFile(LOG, 0, why)

    @property
    def known(self) -> Head | None:
        """The last known head, which may be stale; None if no head is known."""
        return self._head

    def still(
        self, head: Head, before: Sequence[Step] = (), after: Sequence[Step] = (), perform: Perform | None = None
    ) -> bool:
        """Tell whether a head is still the newest. The steps `before` and `after` are performed before and after the
        test, all in one round trip."""
        state = head.state
        above, own = GetPublished(record_path(state.version + 1)), GetPublished(record_path(state.version))
        (perform or self.folder.perform)([*before, above, own, *after])
        # The machine behind another connection may have lost power, and have records again that were deleted.
        is_same = self.folder.connections == self._connection
        return is_same and above.result is None and is_still_there(own, state.hash)

    def look_between(
        self, head: Head | None, before: Sequence[Step], after: Sequence[Step], perform: Perform | None = None
    ) -> tuple[Head, bool]:
        """Return the newest head, and True if `after` was performed after this head was read. The arguments are those
        of `still`. If `head` is None, only `before` is performed."""
        if head is None:
            (perform or self.folder.perform)(before)
        elif self.still(head, before, after, perform):
            return head, True
        return self.look(), False

    def forget(self) -> None:
        """Drop the head after an error of the store: the next look opens the log again."""
        with self._guard:
            self._head = None

    def _open(self, perform: Perform | None) -> Head | None:
        """Open the log: read the newest checkpoint, or record 1, and all later records. Return None if a needed file
        was deleted meanwhile."""
        line, names, records = GetPublished(FORMAT), ListDirectory(CHECKPOINTS), ListDirectory(LOG)
        are_objects = Capability.OBJECTS in self.folder.capabilities
        folders = [] if are_objects else [GetStat(name) for name in FOLDERS]
        asked: list[Step] = [line, names] if self._listed else [line, names, records, *folders]
        head, guesses = None, is_remote(self.folder) and not are_objects

        def ask(steps: Sequence[Step]) -> None:
            (perform if guesses and perform else self.folder.perform)(steps)
            self._connection = self.folder.connections

        if guesses:  # Before the first checkpoint, this mostly reads all records.
            head = self._walk(1, asked, lambda first: self._begun(None if names.result else first), AHEAD, ask)
        else:
            ask(asked)
        if line.result is None:
            raise NoSuchRepository(self.path)
        self.lacks_folders = not self._listed and any(folder.result is None for folder in folders)
        parse_format(line.result)
        found = newest_first(names.result or ())
        listed = [] if self._listed else numbers_of(records.result)
        head = head or self._first(found, max(listed, default=0))
        if head is None or head.damage is not None:
            return head
        above = [version for version in (*listed, *(number for number, _ in found)) if version > head.state.version]
        if above:  # The folders may have been listed after the records were asked for.
            head = self._read_on(head.state)
            if head is None or head.damage is not None:
                return head
            version = head.state.version
            records_above = {number: GetPublished(record_path(number)) for number in listed if number > version}
            self.folder.perform(list(records_above.values()))
            # An empty folder does not count: where a record is published as a folder, a loss of power may leave one.
            above = [number for number, look in records_above.items() if look.result is not None]
            above += [number for number, _ in found if number > version]
        if above:
            # A copy that lacks records, or an older log under a newer checkpoint: a change would hide later changes.
            why = f"it is missing, although a file of change {max(above)} exists"
            return Head(head.state, CorruptFile(record_path(head.state.version + 1), 0, why))
        self._listed = True
        return head

    def _first(self, checkpoints: Sequence[tuple[int, bytes]], newest: int) -> Head | None:
        """Read the head, starting from the first undamaged checkpoint, else from record 1. `newest`: the number of the
        record that is probably the last."""
        for version, record_hash in checkpoints:
            file = Get(checkpoint_path(version, record_hash))
            head = self._walk(version, [file], partial(self._saved, file, record_hash), newest)
            if head is not None:
                return head
        return self._walk(1, [], self._begun, newest)

    def _saved(self, file: Get, record_hash: bytes, record: bytes | None) -> State | None:
        """Return the state in a checkpoint; None if the checkpoint is missing, damaged, or not of this record."""
        if file.result is None or record is None or hash_of(record) != record_hash:
            return None
        try:
            state = decode_checkpoint(file.result, file.path)
        except CorruptFile as error:
            log.warning("%s: %s; an older checkpoint is used", self.path or ".", error)
            return None
        self.since = Since(newest=len(record), checkpoint=len(file.result))
        return state if state.hash == record_hash else None

    def _begun(self, first: bytes | None) -> State | None:
        """Return the state after record 1; None if the record is missing."""
        if first is None:
            return None
        record_one = decode_record(first, record_path(1))
        if (record_one.number, record_one.parent) != (1, NOTHING):
            raise CorruptFile(record_path(1), 0, f"it is record {record_one.number}")
        self.since = Since()
        return first_state(hash_of(first))

    def _read_on(self, state: State) -> Head | None:
        """Read the records after a state, and return the head; None if the state's record was deleted."""
        return self._walk(state.version, [], lambda _: state, state.version + 1)

    def _walk(
        self,
        version: int,
        steps: Sequence[Step],
        start: Callable[[bytes | None], State | None],
        newest: int,
        perform: Perform | None = None,
    ) -> Head | None:
        """Read the records after a version until one is missing, and return the head. Return None if the record of the
        version, or the last one that was read, was deleted meanwhile.

        `steps` are performed first, then `start` is called with the record of that version and returns its state.
        `newest`: the number of the record that is probably the last. `perform`: is used in place of the folder for the
        first steps.

        Records are read from the highest number down, so each existing one was read after the missing one. Each record
        fixes those before it.
        """
        at, ahead, state, stood = version, max(newest - version, 0) + 1, None, b""
        while True:
            asked = [GetPublished(record_path(at + 1 + more)) for more in range(ahead)]
            again = {number: GetPublished(record_path(number)) for number in (at, version)}
            (perform or self.folder.perform)([*steps, *reversed(asked), *again.values()])
            perform = None
            if state is None:
                steps, state = (), start(again[version].result)
                if state is None:
                    return None
                stood = state.hash
            if not (is_still_there(again[version], stood) and is_still_there(again[at], state.hash)):
                return None
            records, damage = _decoded(at, [step.result for step in asked])
            try:
                state = state.after_all(records)
            except Misfit as error:
                state, damage = error.before, CorruptFile(record_path(error.before.version + 1), 0, str(error))
            if damage is not None:
                return Head(state, damage)
            for step in asked[: len(records)]:
                self._count(step.result or b"")
            if len(records) < len(asked):
                return Head(state)
            at, ahead = state.version, min(AHEAD, ahead * 4)

    def _count(self, content: bytes) -> None:
        self.since.records += 1
        self.since.size += len(content)
        self.since.newest = len(content)


def first_reads(store: Transport) -> list[GetPublished | GetStat | ListDirectory]:
    """Return the steps that read a repository of a remote store for the first time. They include the first records, but
    not in an object store, where each read costs money."""
    lists = [ListDirectory(CHECKPOINTS), ListDirectory(LOG)]
    if Capability.OBJECTS in store.capabilities:
        return [GetPublished(FORMAT), *lists]
    records = [GetPublished(record_path(number)) for number in range(AHEAD + 1, 0, -1)]
    return [GetPublished(FORMAT), *lists, *(GetStat(name) for name in FOLDERS), *records]


def is_still_there(step: GetPublished, record_hash: bytes) -> bool:
    """Tell whether a step has read a whole record with this hash."""
    return is_record(step.result, record_hash)


def _decoded(version: int, contents: Sequence[bytes | None]) -> tuple[list[tuple[Record, bytes]], CorruptFile | None]:
    """Decode the records after a version up to the first missing or damaged one. Return each with its hash, and the
    damage or None."""
    records = []
    for number, content in enumerate(contents, version + 1):
        if content is None:
            break
        try:
            records.append((decode_record(content, record_path(number)), hash_of(content)))
        except CorruptFile as error:
            return records, error
    return records, None
