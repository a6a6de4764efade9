"""A commit in a lightweight checkout: one request reads what its tree is based on, one sends the new revision.

Breezy's own commit builder makes the records, in memory: the pages of the inventory it changes are those the checkout
itself has, so that nothing of the tree need come. The request that sends them moves the tip, from where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from breezy import errors
from breezy.revision import NULL_REVISION

from smartserver.client.updates import RefUpdate
from smartserver.errors import StaleLease
from smartserver.plugins.breezy.source import Source
from smartserver.plugins.breezy.stores import repository_over
from smartserver.plugins.breezy.wanted import commit_on
from smartserver.records.model import RevisionId
from smartserver.vcs.brz import BrzRepository
from smartserver.vcs.brz_compat import forget_pages
from smartserver.verbs.fields import HERE
from smartserver.verbs.rules import Create, Rule

if TYPE_CHECKING:
    from smartserver.plugins.breezy.branch import HpssBranch
    from smartserver.vcs.brz_plan import BrzPlan


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
        made = self._repository(asks=True)
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
        self._branch.repository.rest_on(self._repository(asks=False))

    def _plan(self, revision: RevisionId) -> BrzPlan:
        from smartserver.vcs.brz_plan import BrzPlan

        parents, repository = self._content.parents, BrzRepository(self._repository(asks=False))
        return BrzPlan(repository, {revision: parents[revision]}, parents.keys(), partial=True)

    def _repository(self, *, asks: bool) -> Any:
        repository = self._branch.repository
        return repository_over(repository.in_memory(), self._content, repository.asking, repository.whole, asks=asks)
