"""`Map.update`: change entries of a map, several in one call, each by its own rule."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from smartserver.errors import (
    AccessDenied,
    InvalidName,
    MissingRevision,
    NoSuchBranch,
    NoSuchRepository,
    StaleEntry,
    WrongMapKind,
)
from smartserver.verbs.declare import Arguments, Context, Permission, Result, verb
from smartserver.verbs.fields import MAX_IDS, MAX_NAME, RefName, Value, Word


class MapKind(enum.StrEnum):
    """The kind of a map's values."""

    IDS = "ids"
    """The values are revision ids."""
    OPAQUE = "opaque"


class How(enum.StrEnum):
    """The rule for the change of an entry. An entry that has the new value already is a success under any rule."""

    ADD = "add"
    """The entry must be absent."""
    EQUAL = "equal"
    """The entry must have the value that the caller expects."""
    SET = "set"
    """The entry may have any value."""


class Verdict(enum.StrEnum):
    """The outcome of an entry."""

    DONE = "done"
    UNCHANGED = "unchanged"
    """The entry had the new value already."""
    CONFLICT = "conflict"
    """The entry was not changed, because it does not have the value that the caller expected."""


class EntryChange(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The key and the new value of an entry; the value nil removes the entry. The key is empty only if the map has one
    entry for each ref. `expected`: the value for the rule `equal`, ignored by other rules; nil means that the entry
    must be absent.
    """

    key: Annotated[bytes, msgspec.Meta(max_length=MAX_NAME, examples=[b"release-1.0"])]
    value: Value | None
    how: How = How.ADD
    expected: Value | None = None


class MapUpdateRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Changes to entries of one map.

    `kind`: the map's kind, which must be the one that the repository's system defines. `of`: the ref to which the
    entries belong, or nil. `strict`: true to refuse the whole call if one entry has a conflict.
    """

    map: Word
    kind: MapKind
    entries: Annotated[list[EntryChange], msgspec.Meta(max_length=MAX_IDS)]
    of: RefName | None = None
    strict: bool = False


class EntryOutcome(Result, frozen=True, array_like=True):
    """The outcome of one entry, and its previous value; nil if it was absent."""

    verdict: Verdict
    old: bytes | None = None


class MapUpdateResult(Result, frozen=True, array_like=True):
    """The outcome of each entry, in order."""

    entries: list[EntryOutcome]


@verb(
    "Map.update",
    own_verdict=True,
    errors=(
        *(AccessDenied, InvalidName, MissingRevision, NoSuchBranch, NoSuchRepository),
        *(StaleEntry, WrongMapKind),
    ),
)
def map_update(context: Context, request: MapUpdateRequest) -> MapUpdateResult:
    """Set and remove entries of a map. An entry without the value that the caller expects is reported and not changed.

    The system of the repository defines its maps, the revisions that an entry may name, and the permissions for a
    change. In a map of `ids`, replacing or removing an entry needs the permission to force, like moving a tag. A
    bookmark needs the permission that a branch would need. Entries that belong to a ref are removed with it.
    """
    transaction, of = context.transaction, request.of
    transaction.check_map(request.map, request.kind, of_refs=of is not None)
    if of is not None and transaction.ref(of) is None:
        raise NoSuchBranch(of)
    outcomes: list[EntryOutcome] = []
    changes: dict[bytes, bytes | None] = {}
    changed: list[tuple[bytes, tuple[bytes | None, bytes | None]]] = []
    asserted = False
    for entry in request.entries:
        key = _key(of, entry.key)
        if request.kind is MapKind.IDS and entry.value is not None and not 1 <= len(entry.value) <= MAX_NAME:
            raise InvalidName(entry.key, f"a revision id of {len(entry.value)} bytes, expected 1 to {MAX_NAME}")
        old = changes[key] if key in changes else transaction.entry(request.map, key)
        if old == entry.value:
            verdict = Verdict.UNCHANGED
            asserted |= entry.how is How.SET
        elif (entry.how is How.ADD and old is not None) or (entry.how is How.EQUAL and old != entry.expected):
            if request.strict:
                raise StaleEntry(request.map, entry.key)
            verdict = Verdict.CONFLICT
        else:
            verdict = Verdict.DONE
            changes[key] = entry.value
            if entry.value is not None:
                transaction.check_entry(request.map, key, entry.value)
            changed.append((entry.key, (old, entry.value)))
        outcomes.append(EntryOutcome(verdict, old))
    rights = transaction.entry_rights(request.map, [values for _, values in changed])
    for (entry_key, _), right in zip(changed, rights, strict=True):
        context.require(Permission(right), entry_name(of, request.map, entry_key))
    # Only now, because a refused call must change nothing.
    for key, value in changes.items():
        transaction.set_map(request.map, request.kind, key, value)
    if asserted:
        transaction.remember()
    return MapUpdateResult(outcomes)


def entry_name(of: bytes | None, name: str, key: bytes) -> bytes:
    """Return the name of an entry for permissions: its ref, if any, then NUL and MAP/KEY. No ref can have such a
    name."""
    return (of or b"") + b"\0" + name.encode() + b"/" + key


def _key(of: bytes | None, key: bytes) -> bytes:
    """Return the key under which an entry is stored."""
    if b"\0" in key:
        raise InvalidName(key, "it has a NUL byte")
    if of is not None:
        return of + b"\0" + key
    if not key:
        raise InvalidName(key, "a name must not be empty")
    return key
