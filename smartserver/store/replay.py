"""Carries a lost change out again, on whatever the repository is now.

Each key changes only where it has the value that it had before that change. A ref that was changed since stays, and the
revision is kept under another name. So nothing that came since is overwritten.
"""

from __future__ import annotations

from smartserver.errors import MissingBase, MissingParents, MissingRevision
from smartserver.store.lost import LostChange
from smartserver.store.model import INCOMPLETE
from smartserver.store.record import Change, Entry
from smartserver.store.state import DECLARED, MAP, REFS, SETTINGS, decode_value, encode_value
from smartserver.store.transaction import Transaction

RESTS = (MissingParents, MissingBase, MissingRevision)
"""What is raised for a change that rests on another one."""


def begin_again(transaction: Transaction, entry: Entry) -> None:
    """Create the repository where an entry did, and none is there."""
    if entry.begins is not None:
        settings = {each.key.decode(): each.new for each in entry.changes if each.table == SETTINGS and each.new}
        incomplete = settings.pop(INCOMPLETE, None) is not None
        transaction.create(entry.begins.vcs, entry.begins.kinds, settings, incomplete=incomplete)


def replay(transaction: Transaction, change: LostChange) -> list[str]:
    """Make a change, except the parts that were changed since; each of these in words."""
    entry = change.entry
    begin_again(transaction, entry)
    kinds = {each.key.decode(): (each.new or b"").decode() for each in entry.changes if each.table == DECLARED}
    conflicts: list[str] = []
    for each in entry.changes:
        if not _apply(transaction, each, kinds):
            word = each.key.decode(errors="replace")
            conflicts.append(f"{word} was changed since{_keep(transaction, change, each)}")
    transaction.remember()
    return conflicts


def _keep(transaction: Transaction, lost: LostChange, change: Change) -> str:
    """Make a ref for what a ref was to be that was changed since; in words where that is."""
    if change.table != REFS or change.new is None:
        return ""
    prefix, _, rest = change.key.rpartition(b"refs/")
    name = prefix + b"refs/recovered/%b/%b" % (lost.id.encode(), rest)
    transaction.set_ref(name, decode_value(change.new))
    return f"; what it was to be is kept as {name.decode(errors='replace')}"


def _apply(transaction: Transaction, change: Change, kinds: dict[str, str]) -> bool:
    """Make one change; False where what it changes is not what it was."""
    word = change.key.decode(errors="replace")
    if change.table == REFS:
        value = transaction.ref(change.key)
        now = None if value is None else encode_value(value)
    elif change.table == SETTINGS:
        now = transaction.settings.get(word)
    elif change.table.startswith(MAP):
        name = change.table.removeprefix(MAP)
        now = transaction.entry(name, change.key) if name in transaction.maps() else None
    else:
        return True  # The kind of a new map, which is used with its first entry.
    if now == change.new or (change.table == REFS and _has_passed(transaction, change)):
        return True
    if now != change.old:
        return False
    if change.table == REFS:
        transaction.set_ref(change.key, None if change.new is None else decode_value(change.new))
    elif change.table == SETTINGS:
        transaction.set_setting(word, change.new)
    else:
        kind = transaction.map_kind(name) or kinds.get(name, "opaque")
        transaction.set_map(name, kind, change.key, change.new)
    return True


def _has_passed(transaction: Transaction, change: Change) -> bool:
    """Whether a ref was moved past what a change made of it: its client has pushed on from there since."""
    value = transaction.ref(change.key)
    new = [] if change.new is None else decode_value(change.new)
    return (
        bool(new and value)
        and all(transaction.is_stored(tip.id) for tip in new)
        and all(any(transaction.is_ancestor(tip.id, each.id) for each in value or ()) for tip in new)
    )
