"""Imports the names of Mercurial that are used here, and declares the types of a repository's parts.

The rule of this file: nothing else under `vcs` imports Mercurial, and nothing imports this module before there is a
Mercurial repository to read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from mercurial import mdiff
from mercurial.error import Abort, LookupError, RevlogError  # noqa: A004

__all__ = ["Abort", "LookupError", "Repository", "Revlog", "RevlogError", "line_delta", "unchecked"]

Repository = Any
"""A `localrepo.localrepository`."""

Node = bytes


class Revlog(Protocol):
    """A revlog, or an object that wraps one: the versions of a file, the manifests, the changesets."""

    def hasnode(self, node: Node) -> bool:
        """Tell whether the revlog has a node."""

    def rev(self, node: Node) -> int:
        """Return the revision number of a node. Each repository has its own numbers."""

    def node(self, rev: int) -> Node:
        """Return the node of a revision number."""

    def parents(self, node: Node) -> Sequence[Node]:
        """Return the two parents of a node; null for an absent parent."""

    def flags(self, rev: int) -> int:
        """Return the revlog flags of a revision."""

    def rawdata(self, node: Node) -> bytes:
        """Return the text in the form that is hashed."""

    def rawsize(self, rev: int) -> int:
        """Return the size of the text in the form that is hashed."""

    def deltaparent(self, rev: int) -> int:
        """Return the number of the revision against which the delta of `rev` is stored; -1 if its text is stored
        whole."""

    def revdiff(self, base: int, rev: int) -> bytes:
        """Return the difference between two texts in Mercurial's own form. This is fast if the difference is stored."""

    def clearcaches(self) -> None:
        """Drop all cached texts."""


def changesets(repository: Repository) -> Any:
    """Return the changelog, which has more methods than `Revlog` declares."""
    return repository.unfiltered().changelog


def manifests(repository: Repository) -> Revlog:
    """Return the revlog of manifests."""
    return _revlog(repository.unfiltered().manifestlog.getstorage(b""))


def file_versions(repository: Repository, path: bytes) -> Revlog:
    """Return the revlog of a file's versions. Mercurial does not hash the texts that are read from it."""
    store: Any = _revlog(repository.unfiltered().file(path))
    store.checkhash = _unchecked  # This object is not shared.
    found: Revlog = store
    return found


@contextlib.contextmanager
def unchecked(*stores: Any) -> Iterator[None]:
    """Keep Mercurial from hashing the texts that it reads from these revlogs, because the receiver checks them."""
    for store in stores:
        store.checkhash = _unchecked
    try:
        yield
    finally:
        for store in stores:
            vars(store).pop("checkhash", None)  # Another reading of the store may have ended meanwhile.


def _unchecked(*_arguments: object, **_named: object) -> None:
    pass


def _revlog(storage: Any) -> Revlog:
    found: Revlog = storage.get_revlog() if hasattr(storage, "get_revlog") else storage._revlog  # Before 6.9.
    return found


def line_delta(text: bytes, base: bytes) -> bytes:
    """Return the difference between a text and its base, in Mercurial's own line-based form."""
    found: bytes = mdiff.textdiff(base, text)
    return found
