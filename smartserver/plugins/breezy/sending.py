"""What Breezy inserts into a repository on a server: revisions from a bundle or another repository come one by one.

One request sends them, and leaves the tip where it is: the commit, merge or pull that needs them follows. A write group
collects revisions in memory: its request sends all of them, or fails and stores none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from breezy.repository import Repository

from smartserver.plugins.breezy.changes import stays
from smartserver.plugins.breezy.remote import Remote
from smartserver.plugins.breezy.stores import in_memory
from smartserver.records.model import Plan, RevisionId
from smartserver.vcs.bzr.complete import instead_of_breezys_look
from smartserver.vcs.bzr.repository import BrzRepository


@dataclass(frozen=True, slots=True)
class Lacking:
    """What a server lacks of a local repository, as a push is given it; `only`: of these revisions, not of the tips."""

    repository: BrzRepository
    only: Collection[RevisionId] | None = None

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Plan:
        """What is sent, given what the server is thought to have."""
        from smartserver.vcs.bzr.plan import plan  # What a push of nothing new needs not.

        return plan(self.repository, tips if self.only is None else self.only, haves)


INSERTS = frozenset((
    "add_inventory", "add_inventory_by_delta", "add_revision", "add_signature_text", "chk_bytes", "inventories",
    "revisions", "signatures", "texts",
))  # fmt: skip
"""What Breezy's code uses of a repository to insert into it, within a write group."""


def send_beside(remote: Remote, repository: Repository, revisions: Collection[RevisionId]) -> None:
    """Have the server keep revisions of another repository that none of its branches leads to yet."""
    if not revisions:
        return
    with repository.lock_read(), remote.words():
        remote.change([stays(remote)], (), Lacking(BrzRepository(repository), revisions))


class WriteGroup:
    """What is inserted until the group ends."""

    def __init__(self, below: Repository) -> None:
        """`below`: a repository that has what is inserted rests on."""
        self.repository = in_memory(below)
        self.repository.lock_write()
        self.repository.start_write_group()

    def abort(self) -> None:
        """Drop it all."""
        self.repository.abort_write_group(suppress_errors=True)
        self.repository.unlock()

    def send(self, remote: Remote) -> None:
        """End the group, and send it."""
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
