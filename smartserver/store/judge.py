"""Judges new records: those with a fault that harms clients are refused, lesser faults are counted for a warning.

Only what is new is judged. A record that is stored already stays what it is, and so does what it gives a meaning: a
push onto an old history is not refused for that.

A record whose role makes it a file that the system itself reads is decoded a second time, when its segment is complete.
Its type and size are judged before that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from smartserver.errors import CorruptRecord
from smartserver.records.charge import Charge, free
from smartserver.records.faults import Level, Policy, RecordFault, RecordRole
from smartserver.records.model import Key, Record, RevisionId
from smartserver.records.system import system_of


class Judge:
    """The faults of the records of one push."""

    def __init__(
        self,
        vcs: str,
        policy: Policy,
        is_stored: Callable[[int, Key], bool],
        measure: Callable[[int, Key], tuple[bytes, int] | None],
        read: Callable[[int, Key], AbstractContextManager[Record]],
        charge: Charge = free,
    ) -> None:
        """`measure` gives the meta and text length of a new or stored record, None where there is none. It decodes
        nothing. `read` gives the record, which must not be kept after the context."""
        self._checker = system_of(vcs).faults
        self._policy = policy
        self._judges = policy.level is not Level.OFF and bool(self._checker.severities)
        self._is_stored = is_stored
        self._measure = measure
        self._read = read
        self._charge = charge
        self._roles: dict[RecordRole, Key] = {}
        """What the segment under check gives a meaning, and the first record that does."""
        self._judged: set[RecordRole] = set()
        self.warnings: dict[str, tuple[int, Key]] = {}
        """By the id of a fault that is no reason to refuse: how many records have it, and the first of them."""

    def look(self, revision: RevisionId, record: Record, base: Record | None) -> None:
        """Judge a record by itself.

        Raises:
            CorruptRecord: it is refused.
        """
        if not self._judges:
            return
        kind, key, meta, text = record
        below = None if base is None or base.meta != meta else base.text
        faults, roles = self._checker.look(kind, meta, text, below)
        if faults and not self._is_stored(kind, key):
            self._weigh(revision, key, faults)
        for role in roles:
            if role not in self._judged:
                self._roles.setdefault(role, key)

    def finish(self, revision: RevisionId) -> None:
        """Judge the records that those of a whole segment give a meaning.

        Raises:
            CorruptRecord: one is refused.
            Cancelled, LimitExceeded: as `Allowance.charge` and `Allowance.decode`.
            CorruptFile, TransportError: the store is damaged or failed.
        """
        for role, key in self._roles.items():
            if not self._is_stored(role.kind, key):
                self._finish_role(revision, role)
            self._judged.add(role)
        self._roles.clear()

    def _finish_role(self, revision: RevisionId, role: RecordRole) -> None:
        self._charge(1)
        size = self._measure(role.kind, role.key)
        if size is None:  # `SegmentProof` refuses what must be here.
            return
        faults = self._checker.size_faults(role, *size)
        if not faults:
            with self._read(role.kind, role.key) as record:
                faults = self._checker.role_faults(role, record, self._charge)
        self._weigh(revision, role.key, faults)

    def _weigh(self, revision: RevisionId, key: Key, faults: Sequence[RecordFault]) -> None:
        for fault in faults:
            if fault.id in self._policy.ignored:
                continue
            if self._policy.refuses(self._checker.severities[fault.id]):
                raise CorruptRecord(revision, key, f"{fault.id}: {fault.why}")
            count, first = self.warnings.get(fault.id, (0, key))
            self.warnings[fault.id] = count + 1, first
