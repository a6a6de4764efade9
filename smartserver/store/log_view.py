"""`LogView`: the log of one repository on a store, as it is read. `log` changes it, and has the theory of operation."""

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
"""Attempts to open a state whose base was gone, or to publish a record whose outcome the store did not tell."""
AHEAD = 32
"""Records that are asked for at once where many may have come."""

log = logging.getLogger("smartserver")


@dataclass(frozen=True, slots=True)
class Head:
    """The newest state of a repository."""

    state: State
    damage: CorruptFile | None = None
    """Why no change may follow it: what lies above it is damaged, or of another line."""

    @property
    def live(self) -> State | None:
        """The state of the repository; None if there is none, as after a deletion."""
        return self.state if self.state.exists else None


NOWHERE = Head(State(0, NOTHING))
"""The head where no repository was ever made."""


Perform = Callable[[Sequence[Step]], None]
"""Performs steps, as `Transport.perform`."""


class LogView:
    """The log of the repository in `folder`, as it is read; usable from several threads at once."""

    def __init__(self, folder: Transport, path: str) -> None:
        """`path`: of the repository, for errors."""
        self.folder = folder
        self.path = path
        self._guard = threading.Lock()
        self._head: Head | None = None
        self.since = Since()
        """The records that a checkpoint would save."""
        self._connection = 0
        """Through which connection to the store the head was read."""
        self._listed = False
        """True once nothing was found above the head."""
        self.lacks_folders = False
        """True if a folder was missing at the first look: a copy may have left out an empty one."""

    # -- looking

    def look(self, perform: Perform | None = None, *, has_successor: bool = False) -> Head:
        """The newest state as of now. `perform`: performs the first steps, if the log is opened behind a link, in place
        of the folder. `has_successor`: a record is known to follow the head.

        Raises:
            NoSuchRepository: no repository was ever made here.
        """
        with self._guard:
            for _ in range(TRIES):
                warm = self._head
                try:
                    # Behind a link the record after the next is asked for, too: a trip less where something came.
                    if warm is not None and not (has_successor or is_remote(self.folder)) and self.still(warm):
                        return warm
                    head = self._open(perform) if warm is None else self._read_on(warm.state)
                except TransportError:
                    self._head = None
                    raise
                if self.folder.connections != self._connection:
                    head = None
                # What does not fit is looked at from the disk once more before it is called damage; then every time.
                self._head = None if head is None or head.damage is not None else head
                if head is not None and (head.damage is None or warm is None):
                    return head
        why = f"record 1, and each checkpoint with its record, are missing, or were deleted {TRIES} times meanwhile"
        raise CorruptFile(LOG, 0, why)

    @property
    def known(self) -> Head | None:
        """The head as it was last seen; None where that is not known."""
        return self._head

    def still(
        self, head: Head, before: Sequence[Step] = (), after: Sequence[Step] = (), perform: Perform | None = None
    ) -> bool:
        """Perform steps, tell whether a head is still the newest, and perform others, all in one trip."""
        state = head.state
        above, own = GetPublished(record_path(state.version + 1)), GetPublished(record_path(state.version))
        (perform or self.folder.perform)([*before, above, own, *after])
        # The machine behind another connection may have lost power, and have records again that were deleted.
        is_same = self.folder.connections == self._connection
        return is_same and above.result is None and is_still_there(own, state.hash)

    def look_between(
        self, head: Head | None, before: Sequence[Step], after: Sequence[Step], perform: Perform | None = None
    ) -> tuple[Head, bool]:
        """The newest head, and whether `after` was performed after it was read, as of `still`; not without a head."""
        if head is None:
            (perform or self.folder.perform)(before)
        elif self.still(head, before, after, perform):
            return head, True
        return self.look(), False

    def forget(self) -> None:
        """Open the state from the store next time: the connection to it was lost, or it failed."""
        with self._guard:
            self._head = None

    def _open(self, perform: Perform | None) -> Head | None:
        """From the newest checkpoint, or the first record, to the head; None where what it stood on went away."""
        line, names, records = GetPublished(FORMAT), ListDirectory(CHECKPOINTS), ListDirectory(LOG)
        are_objects = Capability.OBJECTS in self.folder.capabilities
        folders = [] if are_objects else [GetStat(name) for name in FOLDERS]
        asked: list[Step] = [line, names] if self._listed else [line, names, records, *folders]
        head, guesses = None, is_remote(self.folder) and not are_objects

        def ask(steps: Sequence[Step]) -> None:
            (perform if guesses and perform else self.folder.perform)(steps)
            self._connection = self.folder.connections

        if guesses:  # Where no checkpoint was made yet, this is mostly all.
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
            # An empty folder is nothing: a loss of power leaves one where a record was published as a folder.
            above = [number for number, look in records_above.items() if look.result is not None]
            above += [number for number, _ in found if number > version]
        if above:
            # A copy that lacks records, or an older log under a newer checkpoint: a change would bury what is there.
            why = f"it is missing, and something of change {max(above)} is there"
            return Head(head.state, CorruptFile(record_path(head.state.version + 1), 0, why))
        self._listed = True
        return head

    def _first(self, checkpoints: Sequence[tuple[int, bytes]], newest: int) -> Head | None:
        """The head from the first checkpoint that is whole, else record 1. `newest`: probably the last record."""
        for version, record_hash in checkpoints:
            file = Get(checkpoint_path(version, record_hash))
            head = self._walk(version, [file], partial(self._saved, file, record_hash), newest)
            if head is not None:
                return head
        return self._walk(1, [], self._begun, newest)

    def _saved(self, file: Get, record_hash: bytes, record: bytes | None) -> State | None:
        """The state that a checkpoint says; None where it is not there or not whole, or is of another record."""
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
        """The state after record 1; None where that is not there."""
        if first is None:
            return None
        record_one = decode_record(first, record_path(1))
        if (record_one.number, record_one.parent) != (1, NOTHING):
            raise CorruptFile(record_path(1), 0, f"it says that it is record {record_one.number}")
        self.since = Since()
        return first_state(hash_of(first))

    def _read_on(self, state: State) -> Head | None:
        """From a state that another record seems to follow."""
        return self._walk(state.version, [], lambda _: state, state.version + 1)

    def _walk(
        self,
        version: int,
        steps: Sequence[Step],
        start: Callable[[bytes | None], State | None],
        newest: int,
        perform: Perform | None = None,
    ) -> Head | None:
        """Read the records after a version until one is missing, and see that what they follow is still there; None
        where that is missing.

        `steps`: performed first; then `start` gives the state of that version, whose record it is given. `newest`: the
        record that is probably the last. `perform`: performs them with the first records, in place of the folder.

        The last that may be there is read first, so each that is there was read after the one that is missing. Each
        record fixes those before it.
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
    """The first questions to a repository of a remote store. Questions of objects are paid for: less is guessed."""
    lists = [ListDirectory(CHECKPOINTS), ListDirectory(LOG)]
    if Capability.OBJECTS in store.capabilities:
        return [GetPublished(FORMAT), *lists]
    records = [GetPublished(record_path(number)) for number in range(AHEAD + 1, 0, -1)]
    return [GetPublished(FORMAT), *lists, *(GetStat(name) for name in FOLDERS), *records]


def is_still_there(step: GetPublished, record_hash: bytes) -> bool:
    """Tell whether a record that was read is the one with that hash."""
    return is_record(step.result, record_hash)


def _decoded(version: int, contents: Sequence[bytes | None]) -> tuple[list[tuple[Record, bytes]], CorruptFile | None]:
    """The records that follow a version, each with its hash, up to one that is missing or damaged; then the damage."""
    records = []
    for number, content in enumerate(contents, version + 1):
        if content is None:
            break
        try:
            records.append((decode_record(content, record_path(number)), hash_of(content)))
        except CorruptFile as error:
            return records, error
    return records, None
