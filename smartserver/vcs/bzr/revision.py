"""Parses the texts of revisions and inventories in Breezy's format 2a, strictly.

An inventory names the root pages of two maps (`vcs.bzr.pages`). Every function takes time in proportion to the bytes,
and raises nothing but `ValueError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from smartserver.records.limits import MAX_PARENTS
from smartserver.records.model import Key, RevisionId
from smartserver.vcs.patterns import compile_pattern

FORMAT: Final = 10
"""The format of revisions in 2a."""

SEARCH_KEY: Final = b"hash-255-way"
"""The name of the method by which 2a finds a key in a map: see `search_key`."""

MAX_PROPERTIES: Final = 65_536
"""The most properties of a revision: as many as it may have parents."""


class BrzRevision(NamedTuple):
    """The fields of a revision's text. The parents are in order, and may be ghosts."""

    id: RevisionId
    parents: tuple[RevisionId, ...]
    inventory_sha1: bytes
    """The SHA-1 of the inventory, in hex."""
    committer: bytes
    timestamp: bytes
    """Seconds since 1970, in the form of the text."""
    timezone: int
    """Seconds that the committer's clock is ahead of UTC; 0 if the text has no time zone."""
    properties: Mapping[bytes, bytes]
    message: bytes


class Inventory(NamedTuple):
    """The fields of an inventory's text: the root pages of its maps."""

    revision: RevisionId
    root_id: bytes
    id_to_entry: Key
    by_name: Key


# Revisions: a list of pairs in bencode


def read_revision(text: bytes) -> BrzRevision:
    """Parse a revision's text.

    Raises:
        ValueError: the text is no revision of format 2a.
    """
    quick = _read_usual(text)
    if quick is not None:
        return quick
    fields: dict[bytes, object] = {}
    at = 1
    if text[:1] != b"l":
        raise ValueError("cannot be read as a revision: it is no list")
    while text[at : at + 1] != b"e":
        pair = text[at : at + 1]
        if pair != b"l":
            raise ValueError(f"cannot be read as a revision: no pair at byte {at}")
        name, at = _string(text, at + 1)
        read = _FIELDS.get(name)
        if read is None or name in fields:
            raise ValueError(f"cannot be read as a revision: it has {name[:40]!r} twice, or is not to have it")
        fields[name], at = read(text, at)
        if text[at : at + 1] != b"e":
            raise ValueError(f"cannot be read as a revision: no end of a pair at byte {at}")
        at += 1
    if at + 1 != len(text):
        raise ValueError(f"cannot be read as a revision: it ends at byte {at + 1} of {len(text)}")
    lacking = _FIELDS.keys() - fields.keys() - {b"timezone"}
    if lacking:
        raise ValueError(f"cannot be read as a revision: it has no {min(lacking).decode()}")
    if fields[b"format"] != FORMAT:
        raise ValueError(f"cannot be read as a revision: format {fields[b'format']}, expected {FORMAT}")
    revision, parents, timezone = fields[b"revision-id"], fields[b"parent-ids"], fields.get(b"timezone", 0)
    properties = fields[b"properties"]
    sha1, committer, timestamp, message = (
        fields[name] for name in (b"inventory-sha1", b"committer", b"timestamp", b"message")
    )
    assert isinstance(revision, bytes)
    assert isinstance(parents, tuple)
    assert isinstance(sha1, bytes)
    assert isinstance(committer, bytes)
    assert isinstance(timestamp, bytes)
    assert isinstance(timezone, int)
    assert isinstance(properties, dict)
    assert isinstance(message, bytes)
    return BrzRevision(revision, parents, sha1, committer, timestamp, timezone, properties, message)


def _read_usual(text: bytes) -> BrzRevision | None:
    """Parse a revision with its fields in Breezy's usual order. Return None for any other text, even a valid one."""
    at = 0
    values: list[bytes] = []
    for number, ahead in enumerate(_USUAL):
        found = ahead.match(text, at)
        if found is None:
            return None
        at = found.end()
        if number == _PROPERTIES:
            timezone = int(found[1] or 0)
            try:
                properties, at = _properties(text, at - 1)
            except ValueError:
                return None
        elif number == _PARENTS:
            try:
                parents, at = _strings(text, at - 1)
            except ValueError:
                return None
        else:
            end = at + int(found[1])
            values.append(text[at:end])
            at = end
    if text[at:] != b"ee":  # A string that is cut off leaves no room for the end.
        return None
    committer, timestamp, revision, sha1, message = values
    return BrzRevision(revision, parents, sha1, committer, timestamp, timezone, properties, message)


_COUNT: Final = rb"(0|[1-9][0-9]{0,9}):"
_LENGTH: Final = compile_pattern(_COUNT)
_INTEGER: Final = compile_pattern(rb"i(0|-?[1-9][0-9]{0,18})e")


_USUAL: Final = tuple(
    map(
        re.compile,
        (
            b"ll6:formati%dee" % FORMAT + rb"l9:committer" + _COUNT,
            rb"e(?:l8:timezonei(0|-?[1-9][0-9]{0,18})ee)?l10:propertiesd",
            rb"el9:timestamp" + _COUNT,
            rb"el11:revision-id" + _COUNT,
            rb"el10:parent-idsl",
            rb"el14:inventory-sha1" + _COUNT,
            rb"el7:message" + _COUNT,
        ),
    )
)
"""The bytes between the values of a revision that Breezy wrote."""
_PROPERTIES: Final = 1
_PARENTS: Final = 4


def _string(text: bytes, at: int) -> tuple[bytes, int]:
    length = _LENGTH.match(text, at)
    if length is None:
        raise ValueError(f"cannot be read as a revision: no string at byte {at}")
    start = length.end()
    end = start + int(length[1])
    if end > len(text):
        raise ValueError(f"cannot be read as a revision: a string at byte {at} is cut off")
    return text[start:end], end


def _integer(text: bytes, at: int) -> tuple[int, int]:
    found = _INTEGER.match(text, at)
    if found is None:
        raise ValueError(f"cannot be read as a revision: no number at byte {at}")
    return int(found[1]), found.end()


def _strings(text: bytes, at: int) -> tuple[tuple[bytes, ...], int]:
    if text[at : at + 1] != b"l":
        raise ValueError(f"cannot be read as a revision: no list at byte {at}")
    found = []
    at += 1
    while text[at : at + 1] != b"e":
        name, at = _string(text, at)
        found.append(name)
        if len(found) > MAX_PARENTS:
            raise ValueError(f"cannot be read as a revision: more than {MAX_PARENTS} parents")
    return tuple(found), at + 1


def _properties(text: bytes, at: int) -> tuple[dict[bytes, bytes], int]:
    if text[at : at + 1] != b"d":
        raise ValueError(f"cannot be read as a revision: no table at byte {at}")
    found: dict[bytes, bytes] = {}
    at += 1
    last: bytes | None = None
    while text[at : at + 1] != b"e":
        name, at = _string(text, at)
        if last is not None and name <= last:
            raise ValueError(f"cannot be read as a revision: the properties are out of order at byte {at}")
        found[name], at = _string(text, at)
        last = name
        if len(found) > MAX_PROPERTIES:
            raise ValueError(f"cannot be read as a revision: more than {MAX_PROPERTIES} properties")
    return found, at + 1


_FIELDS: Final[dict[bytes, Callable[[bytes, int], tuple[object, int]]]] = {
    b"format": _integer,
    b"committer": _string,
    b"timezone": _integer,
    b"properties": _properties,
    b"timestamp": _string,
    b"revision-id": _string,
    b"parent-ids": _strings,
    b"inventory-sha1": _string,
    b"message": _string,
}


# Inventories

_PAGE_KEY: Final = compile_pattern(rb"sha1:[0-9a-f]{40}")
_INVENTORY: Final = frozenset(
    (b"search_key_name", b"root_id", b"parent_id_basename_to_file_id", b"revision_id", b"id_to_entry")
)
_USUAL_INVENTORY: Final = compile_pattern(
    b"chkinventory:\nsearch_key_name: %b\n"
    % SEARCH_KEY
    + rb"root_id: ([^\n]*+)\nparent_id_basename_to_file_id: (sha1:[0-9a-f]{40})\n"
    rb"revision_id: ([^\n]*+)\nid_to_entry: (sha1:[0-9a-f]{40})\n"
)


def read_inventory(text: bytes) -> Inventory:
    """Parse an inventory's text.

    Raises:
        ValueError: the text is no inventory of format 2a.
    """
    usual = _USUAL_INVENTORY.fullmatch(text)
    if usual is not None:
        root_id, names, revision, entries = usual.groups()
        return Inventory(revision, root_id, entries, names)
    first, *lines = text.split(b"\n", len(_INVENTORY) + 1)
    if first != b"chkinventory:" or len(lines) != len(_INVENTORY) + 1 or lines.pop():
        raise ValueError("cannot be read as an inventory: not six lines, the first `chkinventory:`")
    fields: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b": ")
        if not colon or name in fields:
            raise ValueError(f"cannot be read as an inventory: the line {line[:80]!r}")
        fields[name] = value
    if fields.keys() != _INVENTORY:
        raise ValueError(f"cannot be read as an inventory: it has no {min(_INVENTORY - fields.keys()).decode()}")
    if fields[b"search_key_name"] != SEARCH_KEY:
        raise ValueError(f"search keys are {fields[b'search_key_name'][:40]!r}, expected {SEARCH_KEY!r}")
    roots = fields[b"id_to_entry"], fields[b"parent_id_basename_to_file_id"]
    for root in roots:
        if _PAGE_KEY.fullmatch(root) is None:
            raise ValueError(f"cannot be read as an inventory: {root[:80]!r} is no key of a page")
    return Inventory(fields[b"revision_id"], fields[b"root_id"], *roots)
