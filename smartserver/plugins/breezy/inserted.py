"""Revisions that Breezy inserts into a repository on a server by themselves: from a bundle, or from another repository.

One request sends them, and leaves the tip of the branch where it is: the commit, merge or pull that needs them follows.
A write group collects revisions in memory: its request sends all of them, or fails and stores none.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from breezy.repository import Repository

from smartserver.plugins.breezy.changes import stays
from smartserver.plugins.breezy.shadow import in_memory
from smartserver.plugins.breezy.source import of_repository
from smartserver.records.model import RevisionId
from smartserver.vcs.brz import BrzRepository
from smartserver.vcs.brz_complete import instead_of_breezys_look

if TYPE_CHECKING:
    from smartserver.plugins.breezy.remote import Remote

INSERTS = frozenset((
    "add_inventory", "add_inventory_by_delta", "add_revision", "add_signature_text", "chk_bytes", "inventories",
    "revisions", "signatures", "texts",
))  # fmt: skip
"""What Breezy's code uses of a repository to insert into it, within a write group."""


def send_beside(remote: Remote, repository: Repository, revisions: Collection[RevisionId]) -> None:
    """Have the server keep revisions of another repository that none of its branches leads to yet.

    Raises:
        BzrError: it could not be done.
    """
    if not revisions:
        return
    with repository.lock_read(), remote.words():
        remote.change([stays(remote)], (), of_repository(BrzRepository(repository), revisions))


class WriteGroup:
    """What is inserted until the group ends."""

    def __init__(self, below: Repository) -> None:
        """`below`: a repository that has what is inserted rests on."""
        self.repository = in_memory()
        self.repository.add_fallback_repository(below)
        self.repository.lock_write()
        self.repository.start_write_group()

    def abort(self) -> None:
        """Drop it all."""
        self.repository.abort_write_group(suppress_errors=True)
        self.repository.unlock()

    def send(self, remote: Remote) -> None:
        """End the group, and send it.

        Raises:
            BzrError: it could not be sent.
        """
        try:
            with instead_of_breezys_look(self.repository):  # The server looks for what is missing.
                self.repository.commit_write_group()
        except BaseException:
            self.abort()
            raise
        self.repository.unlock()
        with self.repository.lock_read():
            keys = self.repository.revisions.without_fallbacks().keys()
            parents = self.repository.get_parent_map([revision for (revision,) in keys])
        inner = {parent for named in parents.values() for parent in named}
        send_beside(remote, self.repository, [revision for revision in parents if revision not in inner])
