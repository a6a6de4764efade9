"""`Checkouts`: the lightweight checkouts of a branch on a server that a command has open, and the parents of their
trees.

A branch may have lost the revision that a tree is based on, by an overwrite or by another user's uncommit. The mirror
has it, unless the mirror was deleted; then the server is asked for it by its id.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from breezy import errors, trace

from smartserver.errors import shown
from smartserver.records.model import RevisionId

GONE = (
    "the revision {} of this tree is no longer in the repository of {}, which was recreated or restored from a backup: "
    "check out the branch into another folder"
)


class Checkouts:
    """The open checkouts of one branch. The object is true while at least one is open."""

    def __init__(self) -> None:
        self._trees: weakref.WeakSet[Any] = weakref.WeakSet()
        self._parents: dict[RevisionId, None] = {}
        """The parents of the trees, in the order in which the trees were opened."""
        self._bases: set[RevisionId] = set()
        """The first parent of each tree."""
        self.ghosts: set[RevisionId] = set()
        """Parents of trees that are in no repository."""
        self.gone = ""
        """The message for the user about a tree's base that is not on the server; empty if none is missing."""

    def __bool__(self) -> bool:
        return bool(self._trees)

    def add(self, tree: Any) -> None:
        """Add a tree that was opened."""
        self._trees.add(tree)
        with contextlib.suppress(errors.BzrError, OSError), tree.lock_read():
            state = tree.current_dirstate()
            self.ghosts.update(state.get_ghosts())
            parents = [parent for parent in state.get_parent_ids() if parent not in self.ghosts]
            self._parents.update(dict.fromkeys(parents))
            self._bases.update(parents[:1])

    def lacking(self, has: Callable[[RevisionId], bool]) -> list[RevisionId]:
        """Return the parents of trees that a mirror lacks. `has`: tells whether the mirror has a revision."""
        return [parent for parent in self._parents if not has(parent)]

    def tell_gone(self, revisions: Iterable[RevisionId], url: str) -> None:
        """Warn the user of missing bases. Other parents of trees are ignored, because they were merged and may not have
        been sent yet."""
        for revision in revisions:
            if revision in self._bases:
                self.gone = GONE.format(shown(revision), url)
                trace.warning("hpss: %s", self.gone)
