"""Faults of a record that matches its key, and the policy that decides which faults are refused.

The ids of faults are those of the system's own checker.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from smartserver.records.charge import Charge, free
from smartserver.records.model import Key, Record


class Severity(enum.Enum):
    """The severity of a fault."""

    HARM = "harm"
    """The fault makes a clone fail, or the cloned repository unsafe."""
    ERROR = "error"
    """The system's own checker calls the fault an error or a warning, but every client works with it."""
    NOTE = "note"
    """The system's own checker reports the fault only as information."""


class Level(enum.StrEnum):
    """The faults of new records for which a push is refused."""

    OFF = "off"
    """No faults are found, because records are not checked."""
    SAFE = "safe"
    """Faults that harm clients (`Severity.HARM`)."""
    STRICT = "strict"
    """Faults that harm clients, and errors."""


class RecordFault(NamedTuple):
    """One fault of one record."""

    id: str
    why: str


class RecordRole(NamedTuple):
    """A role that a folder's record assigns to the record of a file: the system reads files of the name `name`."""

    kind: int
    key: Key
    name: str


CHARGE_EVERY: Final = 256
"""The steps, a tenth of a millisecond of work, that a checker takes between two charges."""

Findings = tuple[Sequence[RecordFault], Sequence[RecordRole]]
"""The faults of a record, and the roles that it assigns to other records."""

NONE: Final[Findings] = ((), ())
"""No faults and no roles, the findings for nearly every record."""


class FaultChecker:
    """Checks the records of one system for faults. This base class finds none."""

    severities: Mapping[str, Severity] = {}
    """The severity, by id, of each fault that is checked."""

    def look(self, kind: int, meta: bytes, text: bytes, base: bytes | None) -> Findings:
        """Return the faults of a readable record, each once, and the roles that it assigns to other records.

        `base`: the text of a record of the same kind and meta. Parts that are equal in both need not be checked again.
        """
        del kind, meta, text, base
        return NONE

    def size_faults(self, role: RecordRole, meta: bytes, size: int) -> Sequence[RecordFault]:
        """Return the faults of a record in its role that can be found without its text. `size`: the bytes of the
        text."""
        del role, meta, size
        return ()

    def role_faults(self, role: RecordRole, record: Record, charge: Charge = free) -> Sequence[RecordFault]:
        """Return all faults of a record in its role. `charge` is called repeatedly with the steps taken."""
        del role, record, charge
        return ()


class Policy(NamedTuple):
    """The rule by which a server refuses records with faults."""

    level: Level = Level.SAFE
    ignored: frozenset[str] = frozenset()
    """The ids of faults that are ignored."""

    def refuses(self, severity: Severity) -> bool:
        """Tell whether a record with a fault of this severity is refused."""
        return severity is Severity.HARM or (severity is Severity.ERROR and self.level is Level.STRICT)


SAFE: Final = Policy()
"""The default policy of a server."""
