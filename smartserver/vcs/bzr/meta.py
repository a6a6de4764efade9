"""Encodes the `meta` of Breezy's records: the parents of a record in its store, unless other data gives them."""

from __future__ import annotations

from collections.abc import Sequence

from smartserver.errors import shown
from smartserver.records.model import RevisionId
from smartserver.vcs.bzr.compat import NULL, StoreKey

NO_PARENTS = NULL
"""The meta of an inventory that has no parents in Breezy's index although its revision has parents. No revision has
this id."""


def inventory_meta(parents: Sequence[StoreKey] | None, of_revision: Sequence[RevisionId]) -> bytes:
    """Return the meta of an inventory; empty if its parents are its revision's."""
    ids = [key[0] for key in parents or ()]
    if ids == list(of_revision):
        return b""
    return b"\0".join(ids) or NO_PARENTS


def inventory_parents(meta: bytes, of_revision: Sequence[RevisionId]) -> tuple[StoreKey, ...]:
    """Return the parents of an inventory with this meta."""
    if meta == NO_PARENTS:
        return ()
    return tuple([(revision,) for revision in (meta.split(b"\0") if meta else of_revision)])


def text_meta(file_id: bytes, parents: Sequence[StoreKey] | None) -> bytes:
    """Return the meta of a file's text.

    Raises:
        ValueError: a parent is the text of another file.
    """
    ids = []
    for key in parents or ():
        if key[0] != file_id:
            raise ValueError(f"a text of {shown(file_id)} has a parent of {shown(key[0])}, another file")
        ids.append(key[1])
    return b"\0".join(ids)


def text_parents(file_id: bytes, meta: bytes) -> tuple[StoreKey, ...]:
    """Return the parents of a file's text with this meta."""
    return tuple([(file_id, revision) for revision in meta.split(b"\0")]) if meta else ()
