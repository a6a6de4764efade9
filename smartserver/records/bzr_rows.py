"""The items of leaves of `id_to_entry`, each as a row of fields: all at once, those that differ, or what one says.

A reader here does not look at what it does not give: who takes a leaf from elsewhere has `records.bzr_pages` check it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from smartserver.records.bzr_changes import other_items
from smartserver.records.bzr_pages import is_node, leaf_head

_ROWS: Final = re.compile(
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


def rows(leaf: bytes) -> list[Row]:
    """All items.

    Raises:
        ValueError: they cannot be read.
    """
    head = leaf_head(leaf)
    found: list[Row] = _ROWS.findall(leaf, head.end)
    if len(found) != head.items:
        raise ValueError(f"cannot be read as a leaf: it says {head.items} and has {len(found)}")
    return found


def differing(new: bytes, old: bytes) -> tuple[list[Row], list[Row]]:
    """What each of two leaves has and the other has not, with few others.

    Raises:
        ValueError: one cannot be read.
    """
    now, then = other_items(new, leaf_head(new).end, old, leaf_head(old).end)
    found, before = _ROWS.findall(now), _ROWS.findall(then)
    if (len(found), len(before)) == (now.count(b"\0"), then.count(b"\0")):
        return found, before
    return rows(new), rows(old)


def holds_rows(page: bytes) -> bool:
    """Whether a page is a leaf of `id_to_entry`: its keys have one part, those of the other map two."""
    return not is_node(page) and page.split(b"\n", 3)[2:3] == [b"1"]


def sha1_named(leaf: bytes, file_id: bytes, revision: bytes) -> bytes | None:
    """The sha1 it says of a file's text, empty for a folder or link; None where it has no such text."""
    sought = b": " + file_id + b"\n"
    at = leaf.find(sought)
    while at >= 0:
        begin = leaf.rfind(b"\n", 0, at) + 1
        fields = leaf[at + len(sought) :].split(b"\n", 4) if leaf[begin - 3 : begin - 2] == b"\0" else ()
        if len(fields) > 3 and fields[2] == revision:
            return fields[3] if leaf[begin:at] == b"file" else b""
        at = leaf.find(sought, at + 1)
    return None
