"""The items of leaves of `id_to_entry`, each as a row of fields: all of them, or those that differ.

A reader here does not look at what it does not give: who takes a leaf from elsewhere has `vcs.bzr.pages` check it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from smartserver.vcs.bzr.changes import other_items
from smartserver.vcs.bzr.pages import leaf_head
from smartserver.vcs.patterns import compile_pattern

# A class of bytes is slow to match, `.` is not. An item's key, before the NUL, is not looked at.
_ROWS: Final = compile_pattern(
    rb"\0(?:7\nfile|4\ndir|5\nsymlink|5\ntree): (.++)\n(.*+)\n(.*+)\n(.++)\n(?:([0-9a-f]{40})\n([0-9]++)\n[YN]\n)?"
)

Row = tuple[bytes, ...]
"""The fields of a `TreeEntry`."""


class TreeEntry(NamedTuple):
    """A file, folder or link of a tree; `sha1` and `size` are a file's, else empty."""

    file_id: bytes
    parent_id: bytes
    name: bytes
    revision: bytes
    """The revision that changed it last: with the file id the key of its text."""
    sha1: bytes
    size: bytes
    """In decimal."""


def rows(leaf: bytes) -> list[Row]:
    """All items."""
    head = leaf_head(leaf)
    found: list[Row] = _ROWS.findall(leaf, head.end)
    if len(found) != head.items:
        raise ValueError(f"cannot be read as a leaf: it says {head.items} and has {len(found)}")
    return found


def differing(new: bytes, old: bytes) -> tuple[list[Row], list[Row]]:
    """The items that only the new and only the old of two leaves has, with few others."""
    now, then = other_items(new, leaf_head(new).end, old, leaf_head(old).end)
    found, before = _ROWS.findall(now), _ROWS.findall(then)
    if (len(found), len(before)) == (now.count(b"\0"), then.count(b"\0")):
        return found, before
    return rows(new), rows(old)
