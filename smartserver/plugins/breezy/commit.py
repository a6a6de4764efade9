"""What is sent to a server besides what a push brings: a commit in a lightweight checkout, and what Breezy inserts.

A commit reads what its tree is based on by one request, and sends the new revision by another, which moves the tip from
where it was. Breezy's own commit builder makes the records, in memory: the pages of the inventory it changes are those
the checkout itself has, so that nothing of the tree need come.

Revisions from a bundle or from another repository come one by one. One request sends them, and leaves the tip where it
is: the commit, merge or pull that needs them follows. A write group collects revisions in memory: its request sends all
of them, or fails and stores none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from breezy import errors
from breezy.repository import Repository
from breezy.revision import NULL_REVISION

from smartserver.client.updates import RefUpdate
from smartserver.errors import StaleLease
from smartserver.plugins.breezy.changes import stays
from smartserver.plugins.breezy.stores import in_memory
from smartserver.plugins.breezy.wanted import commit_on
from smartserver.records.model import Plan, RevisionId
from smartserver.vcs.bzr.compat import forget_pages
from smartserver.vcs.bzr.complete import instead_of_breezys_look
from smartserver.vcs.bzr.repository import BrzRepository
from smartserver.verbs.fields import HERE
from smartserver.verbs.rules import Create, Rule

if TYPE_CHECKING:
    from smartserver.plugins.breezy.branch import HpssBranch
    from smartserver.plugins.breezy.remote import Remote
    from smartserver.vcs.bzr.plan import BrzPlan

Planning = Callable[[Iterable[RevisionId], Iterable[RevisionId]], Plan]
"""Given the tips that are pushed and what the server is thought to have."""


@dataclass(frozen=True, slots=True)
class Source:
    """A push's source; how it is planned is told."""

    planning: Planning

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Plan:
        """What is sent."""
        return self.planning(tips, haves)


def of_repository(repository: BrzRepository, only: Collection[RevisionId] | None = None) -> Source:
    """What a server lacks of a local repository; `only`: of these revisions, instead of the tips."""

    def planning(tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Plan:
        from smartserver.vcs.bzr.plan import plan  # What a push of nothing new needs not.

        return plan(repository, tips if only is None else only, haves)

    return Source(planning)


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
        self.repository = in_memory(below)
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


class Commit:
    """The revisions a builder has made, and not sent yet."""

    def __init__(self, branch: HpssBranch, parents: Sequence[RevisionId]) -> None:
        self._branch = branch
        self._parents = [parent for parent in parents if parent != NULL_REVISION]
        branch.repository.hold()
        self._content = branch.remote.read_for(commit_on(self._parents))
        forget_pages()  # The new revision is sent with what is read here of the one before.

    def builder(self, *arguments: Any) -> Any:
        """Breezy's builder, on a repository in memory."""
        made = self._branch.repository.over(self._content)
        made.is_in_write_group = lambda: True
        return made.get_commit_builder(self._branch, self._parents, *arguments)

    def has(self, revision: RevisionId) -> bool:
        """Whether it is this revision that was made."""
        return revision in self._content.made

    def send(self, revision: RevisionId, revno: int) -> None:
        """Send a revision that was made, and make it the tip.

        Raises:
            OutOfDateTree: the tip has moved since it was read.
            BzrError: it could not be done.
        """
        remote = self._branch.remote
        there = remote.state().tip
        update = RefUpdate(HERE, revision, Rule.LEASE, Create.NO, there, attributes=b"%d" % revno)
        source = Source(lambda tips, haves: self._plan(revision))  # Just this, whatever the server is thought to have.
        with remote.words():
            try:
                remote.change([update], (), source)
            except StaleLease:
                remote.learn_refusal()
                raise errors.OutOfDateTree(None) from None
        self._branch.repository.rest_on(self._repository())

    def _plan(self, revision: RevisionId) -> BrzPlan:
        from smartserver.vcs.bzr.plan import BrzPlan

        parents, repository = self._content.parents, BrzRepository(self._repository())
        return BrzPlan(repository, {revision: parents[revision]}, parents.keys(), partial=True)

    def _repository(self) -> Any:
        return self._branch.repository.over(self._content, asks=False)
