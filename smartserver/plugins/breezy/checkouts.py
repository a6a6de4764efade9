"""The lightweight checkouts a command works in, and what they have of their branch's trees without asking anybody.

A checkout keeps the whole inventory of each parent of its tree in its dirstate. From that the pages of the inventory
follow, so that they need not come from the server; what follows is used only where the server's record of the inventory
names it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from breezy import controldir, errors
from breezy.workingtree import WorkingTree

from smartserver.plugins.breezy.given import given, is_ours
from smartserver.records.model import Key, RevisionId
from smartserver.vcs.bzr.compat import chk_inventory, format_2a

_trees: list[weakref.ref[Any]] = []
"""The working trees that were opened on a branch of a server, oldest first."""


UNREADABLE = (errors.BzrError, OSError)
"""What reading a tree raises that another process locks, or that was deleted since it was opened."""


class Checkout:
    """A lightweight checkout; each question locks it for itself, for reading."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree

    @property
    def root(self) -> str:
        """Its folder."""
        found: str = self._tree.basedir
        return found

    @property
    def branch(self) -> str:
        """The URL of the branch it is one of."""
        found: str = self._tree.branch.base
        return found

    def parents(self) -> list[RevisionId]:
        """The parents of its tree of which it has the inventories: ghosts are left out."""
        with self._tree.lock_read():
            state = self._tree.current_dirstate()
            ghosts = state.get_ghosts()
            return [revision for revision in state.get_parent_ids() if revision not in ghosts]

    def ghosts(self) -> list[RevisionId]:
        """The parents of its tree of which it has nothing."""
        with self._tree.lock_read():
            found: list[RevisionId] = self._tree.current_dirstate().get_ghosts()
            return found

    def inventory(self, revision: RevisionId) -> Any:
        """The inventory of one of `parents`."""
        with self._tree.lock_read():
            basis = self._tree.revision_tree(revision)
            with basis.lock_read():
                return basis.root_inventory

    def changed(self) -> list[Key]:
        """The texts that a comparison with the first parent reads: what the files that were changed were there."""
        with self._tree.lock_read():
            found: list[Key] = []
            if self._tree.last_revision() not in self.parents():
                return found
            basis = self._tree.basis_tree()
            with basis.lock_read():
                for change in self._tree.iter_changes(basis):
                    if change.kind[0] == "file" and change.versioned[0] and change.changed_content:
                        entry = basis.root_inventory.get_entry(change.file_id)
                        found.append(change.file_id + b"\0" + entry.revision)
            return found


def opened(tree: Any) -> None:
    """Take note of a working tree on a branch of a server; once it is dropped it is forgotten."""
    _trees.append(weakref.ref(tree))


def checkout_of(path: str) -> Checkout | None:
    """The lightweight checkout a path lies in, where that was opened; of two of the same the one that is locked."""
    place = os.path.realpath(path)
    trees = [
        tree
        for each in _trees
        if (tree := each()) is not None and f"{place}/".startswith(os.path.join(tree.basedir, ""))
    ]
    trees.sort(key=lambda tree: (len(tree.basedir), bool(tree.is_locked())))
    return Checkout(trees[-1]) if trees else None


def open_checkout(path: str) -> Checkout | None:
    """As `checkout_of`, where it may not have been opened yet."""
    found = checkout_of(path)
    if found is None:
        try:
            tree = WorkingTree.open_containing(path)[0]
        except (errors.BzrError, OSError):
            return None
        found = checkout_of(tree.basedir)
    return found


def parents_over(repository: object) -> list[RevisionId]:
    """The parents of the trees whose branch reads from just this repository object."""
    found: list[RevisionId] = []
    for each in _trees:
        tree = each()
        if tree is not None and tree.branch.repository is repository:
            with suppress(*UNREADABLE):
                found += Checkout(tree).parents()
    return found


def refers_to() -> str | None:
    """The URL of the server's branch that the checkout the command works in is one of; its branch is not opened."""
    try:
        control = controldir.ControlDir.open_containing(str(given("directory") or "."))[0]
        found = control.get_branch_reference()
    except (errors.BzrError, OSError):
        return None
    return found if is_ours(found) else None


def pages_of(revision: RevisionId) -> Mapping[Key, bytes]:
    """The pages of a revision's inventory as a checkout has it; none where none has it.

    Breezy makes the same pages of the same entries, however they have come about.
    """
    for each in reversed(_trees):
        tree = each()
        if tree is None:
            continue
        try:
            checkout = Checkout(tree)
            if revision in checkout.parents():
                return _pages(checkout.inventory(revision))
        except UNREADABLE:
            continue
    return {}


def _pages(inventory: Any) -> dict[Key, bytes]:
    store = _Pages()
    serializer = format_2a().repository_format._serializer
    chk_inventory().from_inventory(
        store, inventory, maximum_size=serializer.maximum_size, search_key_name=serializer.search_key_name
    )
    return store.pages


class _Pages:
    """What Breezy writes pages to."""

    def __init__(self) -> None:
        self.pages: dict[Key, bytes] = {}

    def add_lines(self, key: object, parents: object, lines: list[bytes], **options: object) -> tuple[bytes, int, None]:
        from breezy.osutils import sha_strings

        sha1: bytes = sha_strings(lines)
        text = b"".join(lines)
        self.pages[b"sha1:" + sha1] = text
        return sha1, len(text), None
