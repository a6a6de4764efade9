"""Faults of a record that is what its key says: what they are called, and which of them are refused.

The names are those of the system's own checker.
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
    """A clone, or the repository that it makes, is broken or unsafe."""
    ERROR = "error"
    """The system's own checker calls it an error or a warning, and every client can live with it."""
    NOTE = "note"
    """The checker only mentions it."""


class Level(enum.StrEnum):
    """Which faults of new records refuse a push."""

    OFF = "off"
    """None: records are not looked at."""
    SAFE = "safe"
    """Faults that harm clients."""
    STRICT = "strict"
    """Errors, too."""


class RecordFault(NamedTuple):
    """One fault of one record."""

    id: str
    why: str


class RecordRole(NamedTuple):
    """A record that another one gives a meaning: a file whose name makes the system read it."""

    kind: int
    key: Key
    name: str


CHARGE_EVERY: Final = 256
"""Steps between two charges: a tenth of a millisecond."""

Findings = tuple[Sequence[RecordFault], Sequence[RecordRole]]
"""The faults of a record, and the records that it gives a meaning."""

NONE: Final[Findings] = ((), ())
"""The answer for nearly every record."""


class FaultChecker:
    """Looks for the faults of one system's records; here, of one nothing is known of: none."""

    severities: Mapping[str, Severity] = {}
    """Every fault that is looked for."""

    def look(self, kind: int, meta: bytes, text: bytes, base: bytes | None) -> Findings:
        """The faults of a record that can be read, each once, and the records that it gives a meaning.

        `base`: the text of a record of the same kind and meta. What is of it need not be looked at again: it was when
        that record came.
        """
        del kind, meta, text, base
        return NONE

    def size_faults(self, role: RecordRole, meta: bytes, size: int) -> Sequence[RecordFault]:
        """Why a record is unfit for its role, found without its text. `size`: bytes of that text."""
        del role, meta, size
        return ()

    def role_faults(self, role: RecordRole, record: Record, charge: Charge = free) -> Sequence[RecordFault]:
        """All faults that a record has because of its role. The work is charged as it is done."""
        del role, record, charge
        return ()


class Policy(NamedTuple):
    """A server's policy on faults."""

    level: Level = Level.SAFE
    ignored: frozenset[str] = frozenset()
    """Ids of faults that count as none."""

    def refuses(self, severity: Severity) -> bool:
        """True if a record with a fault that bad is refused."""
        return severity is Severity.HARM or (severity is Severity.ERROR and self.level is Level.STRICT)


SAFE: Final = Policy()
"""The policy of a server that was given none."""
