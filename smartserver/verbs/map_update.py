"""`Map.update`: entries of a map, several in one call, each by its own rule."""

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
    """Revision ids."""
    OPAQUE = "opaque"


class How(enum.StrEnum):
    """When an entry may change. Equal to the new value is success before any of these."""

    ADD = "add"
    """It is absent."""
    EQUAL = "equal"
    """It is what the caller expects."""
    SET = "set"
    """Always."""


class Verdict(enum.StrEnum):
    """The outcome of an entry."""

    DONE = "done"
    UNCHANGED = "unchanged"
    """It was so before."""
    CONFLICT = "conflict"
    """It is as it was, which is not what the caller expected."""


class EntryChange(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An entry's new value, None: none. The key is empty only where the map has one entry for each ref. `expected` is
    read by `equal` only, None: the entry is expected not to be there.
    """

    key: Annotated[bytes, msgspec.Meta(max_length=MAX_NAME, examples=[b"release-1.0"])]
    value: Value | None
    how: How = How.ADD
    expected: Value | None = None


class MapUpdateRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`kind`: of the map, as the system of the repository has it. `of`: the ref that the entries belong to. `strict`: a
    conflict refuses the call.
    """

    map: Word
    kind: MapKind
    entries: Annotated[list[EntryChange], msgspec.Meta(max_length=MAX_IDS)]
    of: RefName | None = None
    strict: bool = False


class EntryOutcome(Result, frozen=True, array_like=True):
    """The outcome of one entry, and the value it had before, None: none."""

    verdict: Verdict
    old: bytes | None = None


class MapUpdateResult(Result, frozen=True, array_like=True):
    """One for each entry, in order."""

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
    """Set and remove entries of a map. One that is not what the caller expects stays as it is and is reported.

    The system of the repository says which maps there are, which revisions an entry may name, and what a change needs:
    in a map of `ids` the permission to force, to replace or remove an entry, as moving a tag does; a bookmark what a
    branch would. What belongs to a ref goes with it.
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
    # Only now: a call that is refused has changed nothing, whatever comes with it.
    for key, value in changes.items():
        transaction.set_map(request.map, request.kind, key, value)
    if asserted:
        transaction.remember()
    return MapUpdateResult(outcomes)


def entry_name(of: bytes | None, name: str, key: bytes) -> bytes:
    """An entry as permissions name it, which no ref is called: the ref it belongs to, if any, NUL, and MAP/KEY."""
    return (of or b"") + b"\0" + name.encode() + b"/" + key


def _key(of: bytes | None, key: bytes) -> bytes:
    """An entry's key as it is kept."""
    if b"\0" in key:
        raise InvalidName(key, "a NUL byte in it")
    if of is not None:
        return of + b"\0" + key
    if not key:
        raise InvalidName(key, "it is empty and belongs to no ref")
    return key
