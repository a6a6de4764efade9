"""What an earlier release stored because a client claimed it, and what the system of the repository says of it now.

`verify` names it; an administrator has it mended. Attributes of tips are proved anew, a map of the wrong kind gets that
of the system, and what no map may hold is removed.
"""

from __future__ import annotations

from collections.abc import Iterator

from smartserver.errors import InvalidName, MissingRevision, shown
from smartserver.records.model import RefValue
from smartserver.records.system import system_of
from smartserver.store.transaction import Transaction

SHOWN = 80
"""Characters of attributes in a line."""

MOST = 1 << 16
"""Entries that one request removes: the log says of each what it was."""


def mend(transaction: Transaction) -> tuple[list[str], bool]:
    """Mend as much as one request may; a line for each thing that is not as it should be, and whether any is left."""
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
        if all(transaction.is_stored(tip.id) for tip in value)  # Else that is the damage.
    }
    for name, value in transaction.tips.values(refs, refs, trusts_stored=False).items():
        if value != refs[name]:
            transaction.changes[name] = value
            yield f"the ref {shown(name)} has {_said(refs[name])}; what is stored proves {_said(value)}"


def _said(value: RefValue) -> str:
    said = [shown(tip.attributes)[:SHOWN] + (" (closed)" if tip.closed else "") for tip in value]
    return f"the attributes {', '.join(each or 'none' for each in said)}"


def _wrong_entries(transaction: Transaction, name: str) -> dict[bytes, str]:
    """The entries that a map of the system cannot have, and why; those of another map, which has none."""
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
    """`is_empty`: whether all entries of a map that the system has not are removed."""
    system = system_of(transaction.vcs)
    known = system.maps.get(name)
    declared = transaction.declared_kind(name)
    if known is None and is_empty:
        transaction.declared[name] = None
        yield f"the map {name!r} is none of {system.name}"
    elif known is not None and declared != known.kind:
        transaction.declared[name] = known.kind
        yield f"the map {name!r} is declared {declared}; it is {known.kind}"
