"""The bytes of Breezy's own records: pages of maps, inventories, revisions.

A page is a leaf (`chkleaf:`) or an inner page (`chknode:`). Both begin with five lines: what they are, the most bytes
of a leaf, the parts of a key, the count of entries, and a prefix that all lines of entries leave out. An entry of a
leaf is its key and the number of lines of its value, which follow; an inner page's is a search prefix and a page's key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from smartserver.records.bzr_changes import other_items
from smartserver.vcs.brz_compat import bdecode

LEAF = b"chkleaf:\n"
INNER = b"chknode:\n"

_HEAD = 5
"""Lines of a page before its entries."""

_LEAF_HEAD = re.compile(LEAF + rb"(?:[^\n]*\n){%d}" % (_HEAD - 1))

_CHILD = len(b"x\0sha1:") + 40
"""Bytes of nearly every child's line."""

_ENTRIES = re.compile(
    rb"[^\0\n]*\0(?:7\nfile|4\ndir|5\nsymlink|5\ntree): ([^\n]+)\n([^\n]*)\n([^\n]*)\n([^\n]+)\n"
    rb"(?:([0-9a-f]{40})\n([0-9]+)\n[YN]\n)?"
)

Row = tuple[bytes, ...]
"""The fields of a `TreeEntry`."""


class TreeEntry(NamedTuple):
    """What a tree says of one file, folder or link; `sha1` and `size` are a file's, else empty."""

    file_id: bytes
    parent_id: bytes
    name: bytes
    revision: bytes
    """The revision that changed it last: with the file id the key of its text."""
    sha1: bytes
    size: bytes
    """In decimal."""


class Roots(NamedTuple):
    """The root pages of an inventory's maps."""

    entries: bytes
    """Of file id to entry."""
    names: bytes
    """Of parent's id and name to file id; empty where there is no such map."""


def roots(text: bytes) -> Roots:
    """The root pages an inventory names.

    Raises:
        ValueError: it is no inventory.
    """
    lines = text.split(b"\n")
    if lines[0] != b"chkinventory:":
        raise ValueError("it is no inventory of format 2a")
    fields = dict([line.partition(b": ")[::2] for line in lines[1:] if line])
    entries = fields.get(b"id_to_entry")
    if not entries:
        raise ValueError("an inventory without a map of entries")
    return Roots(entries, fields.get(b"parent_id_basename_to_file_id", b""))


def is_leaf(page: bytes) -> bool:
    """Whether a page is a leaf.

    Raises:
        ValueError: it is no page.
    """
    if page.startswith(LEAF):
        return True
    if page.startswith(INNER):
        return False
    raise ValueError("it is no page of a map")


def children(page: bytes) -> dict[bytes, bytes]:
    """Search prefix to page of an inner page.

    Raises:
        ValueError: it cannot be read.
    """
    lines = page.split(b"\n")
    if len(lines) <= _HEAD + 1 or lines[0] + b"\n" != INNER or lines.pop():
        raise ValueError("it is no inner page")
    prefix = lines[_HEAD - 1]
    if page.count(b"\0sha1:") == len(lines) - _HEAD and set(map(len, lines[_HEAD:])) == {_CHILD}:
        return {prefix + line[:1]: line[2:] for line in lines[_HEAD:]}
    found = {}
    for line in lines[_HEAD:]:
        ahead, separator, key = (prefix + line).rpartition(b"\0")
        if not separator:
            raise ValueError("an entry of an inner page without a key")
        found[ahead] = key
    return found


def rows(page: bytes) -> list[Row]:
    """What a leaf of the map of entries holds.

    Raises:
        ValueError: it cannot be read.
    """
    head = page.split(b"\n", _HEAD)
    if len(head) <= _HEAD or head[0] + b"\n" != LEAF:
        raise ValueError("it is no leaf")
    found: list[Row] = _ENTRIES.findall(head[5])
    if len(found) == int(head[3]):
        return found
    return [_entry(value) for value in values(page)]


def differing(new: bytes, old: bytes) -> tuple[list[Row], list[Row]]:
    """What each of two leaves of entries has and the other has not, with few others.

    Raises:
        ValueError: one cannot be read.
    """
    now, then = other_items(new, _head_end(new), old, _head_end(old))
    found, before = _ENTRIES.findall(now), _ENTRIES.findall(then)
    if (len(found), len(before)) == (now.count(b"\0"), then.count(b"\0")):
        return found, before
    return rows(new), rows(old)


def _head_end(page: bytes) -> int:
    head = _LEAF_HEAD.match(page)
    if head is None:
        raise ValueError("it is no leaf")
    return head.end()


def holds_entries(page: bytes) -> bool:
    """Whether a page is a leaf of the map of entries: its keys have one part, those of the map of names two."""
    return page.startswith(LEAF) and page.split(b"\n", 3)[2] == b"1"


def sha1_named(page: bytes, file_id: bytes, revision: bytes) -> bytes | None:
    """The sha1 a leaf of entries says of a file's text, empty for a folder or link; None where it has no such text."""
    sought = b": " + file_id + b"\n"
    at = page.find(sought)
    while at >= 0:
        begin = page.rfind(b"\n", 0, at) + 1
        fields = page[at + len(sought) :].split(b"\n", 4) if page[begin - 3 : begin - 2] == b"\0" else ()
        if len(fields) > 3 and fields[2] == revision:
            return fields[3] if page[begin:at] == b"file" else b""
        at = page.find(sought, at + 1)
    return None


def values(page: bytes) -> Iterator[bytes]:
    """The values of a leaf.

    Raises:
        ValueError: it cannot be read.
    """
    lines = page.split(b"\n")
    prefix = lines[_HEAD - 1]
    at = _HEAD
    while at < len(lines) - 1:
        count = int((prefix + lines[at]).rpartition(b"\0")[2])
        at += 1
        if at + count > len(lines):
            raise ValueError("a leaf is cut off")
        yield b"\n".join(lines[at : at + count])
        at += count


def _entry(value: bytes) -> TreeEntry:
    lines = value.split(b"\n")
    kind, _, file_id = lines[0].partition(b": ")
    if not file_id or len(lines) < 4:
        raise ValueError("an entry of a tree cannot be read")
    sha1, size = (lines[4], lines[5]) if kind == b"file" and len(lines) > 5 else (b"", b"")
    return TreeEntry(file_id, lines[1], lines[2], lines[3], sha1, size)


class RevisionRecord(NamedTuple):
    """What of a revision's own record is looked at."""

    id: bytes
    parents: tuple[bytes, ...]
    inventory_sha1: bytes


def revision(text: bytes) -> RevisionRecord:
    """The record of a revision, format 10: a bencoded list of pairs.

    Raises:
        ValueError: it is none.
    """
    try:
        fields = dict(bdecode(text))
        name, parents, sha1 = fields[b"revision-id"], fields[b"parent-ids"], fields[b"inventory-sha1"]
        if fields[b"format"] != 10 or not all(isinstance(each, bytes) for each in (name, sha1, *parents)):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("it cannot be read as a revision of format 10") from None
    return RevisionRecord(name, tuple(parents), sha1)
