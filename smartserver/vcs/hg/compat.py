"""The names of Mercurial that are used here, and the types of the objects that a repository gives.

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
    """A revlog, or what wraps one: the versions of a file, the manifests, the changesets."""

    def hasnode(self, node: Node) -> bool:
        """True if a node is there."""

    def rev(self, node: Node) -> int:
        """The number of a node, which is local."""

    def node(self, rev: int) -> Node:
        """The node of a number."""

    def parents(self, node: Node) -> Sequence[Node]:
        """Two, null where there is none."""

    def flags(self, rev: int) -> int:
        """The revlog flags of a revision."""

    def rawdata(self, node: Node) -> bytes:
        """The text as it is hashed."""

    def rawsize(self, rev: int) -> int:
        """Bytes of that text."""

    def deltaparent(self, rev: int) -> int:
        """The number of the text that this one is stored as a delta on."""

    def revdiff(self, base: int, rev: int) -> bytes:
        """The difference between two texts in Mercurial's own form; quick where it is stored so."""

    def clearcaches(self) -> None:
        """Keep nothing of what was read."""


def changesets(repository: Repository) -> Any:
    """The store of changesets, which is more than a `Revlog`."""
    return repository.unfiltered().changelog


def manifests(repository: Repository) -> Revlog:
    """The store of manifests."""
    return _revlog(repository.unfiltered().manifestlog.getstorage(b""))


def file_versions(repository: Repository, path: bytes) -> Revlog:
    """The store of a file's versions."""
    store: Any = _revlog(repository.unfiltered().file(path))
    store.checkhash = _unchecked  # It is this one's alone.
    found: Revlog = store
    return found


@contextlib.contextmanager
def unchecked(*stores: Any) -> Iterator[None]:
    """Have Mercurial not hash what it reads of some stores: it is proved where it goes to."""
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
    """The lines in which a text differs from another, in Mercurial's own form."""
    found: bytes = mdiff.textdiff(base, text)
    return found
