"""A commit in a lightweight checkout.

It reads what its tree is based on by one request, and sends the new revision by another, which moves the tip from where
it was. Breezy's own commit builder makes the records, in memory: the pages of the inventory it changes are those the
checkout itself has, so that nothing of the tree need come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from breezy import errors
from breezy.branch import Branch
from breezy.revision import NULL_REVISION

from smartserver.client.updates import RefUpdate
from smartserver.errors import StaleLease
from smartserver.plugins.breezy.repository import HpssRepository
from smartserver.plugins.breezy.selection import commit_on
from smartserver.records.model import HERE, RevisionId
from smartserver.vcs.bzr.compat import forget_pages
from smartserver.vcs.bzr.plan import BrzPlan
from smartserver.vcs.bzr.repository import BrzRepository
from smartserver.verbs.rules import Create, Rule


class Commit:
    """The revisions a builder has made, and not sent yet."""

    def __init__(self, branch: Branch, repository: HpssRepository, parents: Sequence[RevisionId]) -> None:
        self._branch = branch
        self._below = repository
        self._parents = [parent for parent in parents if parent != NULL_REVISION]
        repository.hold()
        self._content = repository.remote.read_for(commit_on(self._parents))
        forget_pages()  # The new revision is sent with what is read here of the one before.

    def builder(self, *arguments: Any, **options: Any) -> Any:
        """Breezy's builder, on a repository in memory."""
        made = self._below.over(self._content)
        made.is_in_write_group = lambda: True
        return made.get_commit_builder(self._branch, self._parents, *arguments, **options)

    def has(self, revision: RevisionId) -> bool:
        """Whether it is this revision that was made."""
        return revision in self._content.made

    def send(self, revision: RevisionId, revno: int) -> None:
        """Send a revision that was made, and make it the tip.

        Raises:
            OutOfDateTree: the tip has moved since it was read.
        """
        remote = self._below.remote
        there = remote.state().tip
        update = RefUpdate(HERE, revision, Rule.LEASE, Create.NO, there, attributes=b"%d" % revno)
        with remote.words():
            try:
                remote.change([update], (), self)
            except StaleLease:
                remote.learn_refusal()
                raise errors.OutOfDateTree(None) from None
        self._below.rest_on(self._repository())

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> BrzPlan:
        """What is sent: just the new revision, whatever the server is thought to have."""
        parents, repository = self._content.parents, BrzRepository(self._repository())
        return BrzPlan(repository, {tip: parents[tip] for tip in tips}, parents.keys(), partial=True)

    def _repository(self) -> Any:
        return self._below.over(self._content, asks=False)
