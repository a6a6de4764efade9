"""What a request changes, as the entry of a record."""

from __future__ import annotations

from collections.abc import Iterator

from smartserver.errors import LimitExceeded
from smartserver.store.record import Beginning, Change, Entry, PackEntry, Record, encode_record, hash_of
from smartserver.store.state import DECLARED, MAP, REFS, SETTINGS, State, encode_value
from smartserver.store.table import OVERHEAD, check_key, check_name
from smartserver.store.transaction import Transaction

MAX_STATE = 60 << 20
"""Bytes of all refs, entries of maps and settings, at most: a reply of 64 MiB carries them to a client that knows none.
500,000 refs of 120 bytes are 57.2 MiB; 4 MiB are left for what else a reply says. An entry counts as `LEAST_ENTRY` at
least, so that there are 2**19 at most: a client takes no more, as a short one costs it as much memory as a long one."""

MAX_MAPS = 64
"""Maps of a repository; a client takes no more."""


def entry_of(
    transaction: Transaction,
    state: State,
    request: bytes,
    user: str,
    outcomes: bytes,
    pack: PackEntry | None,
    incarnation: bytes,
    options: tuple[str, ...] = (),
) -> Entry:
    """What a transaction on a state does. `incarnation`: of a repository that it creates. `options`: those of the push.

    Raises:
        InvalidName: a ref name or map key that cannot be one.
    """
    begins = None
    if transaction.created is not None:
        begins = Beginning(incarnation, *transaction.created[:2])
    changes = () if transaction.deleted else tuple(_changes(transaction, state))
    return Entry(request, user, outcomes, changes, pack, begins, transaction.deleted, options)


def _changes(transaction: Transaction, state: State) -> Iterator[Change]:
    """In an order in which each finds what it changes: a map is declared before its entries, and removed after them."""
    for word, kind in transaction.declared.items():
        if kind is not None:
            check_name(word.encode())
            yield from changed(DECLARED, word.encode(), kind_of(state, word), kind.encode())
    for name, value in transaction.changes.items():
        check_name(name)
        new = None if value is None else encode_value(value)
        yield from changed(REFS, name, state.table(REFS).get(name), new)
    for word, entries in transaction.entries.items():
        for key, entry in entries.items():
            check_key(key)
            yield from changed(MAP + word, key, state.table(MAP + word).get(key), entry)
    for word, kind in transaction.declared.items():
        if kind is None:
            yield from changed(DECLARED, word.encode(), kind_of(state, word), None)
    settings = transaction.setting_changes if transaction.created is None else transaction.created[2]
    for setting, content in settings.items():
        yield from changed(SETTINGS, setting.encode(), state.settings.get(setting), content)


def kind_of(state: State, word: str) -> bytes | None:
    """How a map is declared, as a change says it."""
    found = state.map_kind(word)
    return None if found is None else found.encode()


def changed(table: str, key: bytes, old: bytes | None, new: bytes | None) -> Iterator[Change]:
    """A key of a table that another value takes; nothing where it has that one."""
    if old != new:
        yield Change(table, key, old, new)


def following(state: State, record: Record) -> tuple[bytes, State]:
    """The bytes of a record that follows a state, and the state then.

    Raises:
        LimitExceeded: a reply could not carry it, or a record of it is too large; what is too large may become smaller.
    """
    content = encode_record(record)
    after = state.after(record, hash_of(content))
    before, size = _size(state), _size(after)
    if size > MAX_STATE and size > before:
        raise LimitExceeded("bytes of refs, map entries and settings of a repository", size, MAX_STATE)
    if len(after.maps) > max(MAX_MAPS, len(state.maps)):
        raise LimitExceeded("maps of a repository", len(after.maps), MAX_MAPS)
    return content, after


def _size(state: State) -> int:
    settings = sum(len(name.encode()) + len(value) + OVERHEAD for name, value in state.settings.items())
    return settings + sum(table.held for table in state.tables.values())
