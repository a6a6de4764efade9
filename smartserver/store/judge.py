"""Judges new records: those with a fault that harms clients are refused, lesser faults are counted for a warning.

Only what is new is judged. A record that is stored already stays what it is, and so does what it gives a meaning: a
push onto an old history is not refused for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from smartserver.errors import CorruptRecord
from smartserver.records.check import faults_of
from smartserver.records.faults import Fault, Level, Policy, Role
from smartserver.records.model import Key, Record, RevisionId


class Judge:
    """The faults of the records of one push."""

    def __init__(
        self,
        vcs: str,
        policy: Policy,
        is_stored: Callable[[int, Key], bool],
        find: Callable[[int, Key], Record | None],
    ) -> None:
        """`find`: a record that came or is stored."""
        self._checker = faults_of(vcs)
        self._policy = policy
        self._judges = policy.level is not Level.OFF and bool(self._checker.severities)
        self._is_stored = is_stored
        self._find = find
        self._roles: dict[Role, Key] = {}
        """What the segment under check gives a meaning, and the first record that does."""
        self._judged: set[Role] = set()
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
            CorruptFile, TransportError: the store is damaged or failed.
        """
        for role, key in self._roles.items():
            record = self._find(role.kind, role.key)
            if record is not None and not self._is_stored(role.kind, key):
                self._weigh(revision, role.key, self._checker.role_faults(role, record))
            self._judged.add(role)
        self._roles.clear()

    def _weigh(self, revision: RevisionId, key: Key, faults: Sequence[Fault]) -> None:
        for fault in faults:
            if fault.id in self._policy.ignored:
                continue
            if self._policy.refuses(self._checker.severities[fault.id]):
                raise CorruptRecord(revision, key, f"{fault.id}: {fault.why}")
            count, first = self.warnings.get(fault.id, (0, key))
            self.warnings[fault.id] = count + 1, first
