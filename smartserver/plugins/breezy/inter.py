"""Registers the classes by which Breezy pushes, pulls and fetches between a server and other branches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from breezy.branch import Branch, BranchPushResult, GenericInterBranch, InterBranch, PullResult
from breezy.bzr.groupcompress_repo import CHKInventoryRepository
from breezy.bzr.vf_repository import InterSameDataRepository
from breezy.errors import BzrError, LocalRequiresBoundBranch, NoSuchRevision
from breezy.repository import FetchResult, InterRepository, Repository
from breezy.revision import NULL_REVISION
from breezy.trace import mutter

from smartserver.errors import shown
from smartserver.plugins.breezy.branch import HpssBranch
from smartserver.plugins.breezy.checkouts import GONE
from smartserver.plugins.breezy.push import Overwrite, Selector, push
from smartserver.plugins.breezy.remote import remote_of
from smartserver.plugins.breezy.repository import HpssRepository
from smartserver.records.model import RevisionId
from smartserver.spans import Part, spent
from smartserver.vcs.bzr.compat import load_formats, overwritten
from smartserver.vcs.bzr.kinds import SIGNATURES
from smartserver.vcs.bzr.packs import copy_packs
from smartserver.vcs.bzr.repository import BrzRepository


class ToServer(GenericInterBranch):
    """A push to a server, in one request."""

    source: Branch
    target: HpssBranch

    @classmethod
    def is_compatible(cls, source: Branch, target: Branch) -> bool:
        """Tell whether the target is on a server."""
        return isinstance(target, HpssBranch)

    def push(
        self,
        overwrite: Overwrite = False,
        stop_revision: RevisionId | None = None,
        lossy: bool = False,
        _override_hook_source_branch: Branch | None = None,
        tag_selector: Selector | None = None,
    ) -> BranchPushResult:
        """Push the source."""
        return push(self.source, self.target, overwrite, stop_revision, tag_selector, lossy=lossy)

    def _basic_push(
        self, overwrite: Overwrite, stop_revision: RevisionId | None, tag_selector: Selector | None = None
    ) -> BranchPushResult:
        return push(self.source, self.target, overwrite, stop_revision, tag_selector, hooks=False)

    def pull(
        self,
        overwrite: Overwrite = False,
        stop_revision: RevisionId | None = None,
        possible_transports: object = None,
        run_hooks: bool = True,
        _override_hook_target: Branch | None = None,
        local: bool = False,
        tag_selector: Selector | None = None,
    ) -> PullResult:
        """Move the server's branch to the source's tip, for a pull into a checkout of the server's branch.

        Raises:
            LocalRequiresBoundBranch: only a local branch can be bound.
        """
        if local:
            raise LocalRequiresBoundBranch
        with self.source.lock_read(), self.target.lock_write():
            if self._is_decided(overwrite, stop_revision):
                return super().pull(overwrite, stop_revision, run_hooks=run_hooks, tag_selector=tag_selector)
            remote = self.target.remote
            self.target.repository.have(remote.history.lacking_of_checkouts())
            for lost in remote.history.lacking_of_checkouts():
                raise BzrError(GONE.format(shown(lost), remote.url))  # Nothing is changed then.
            pushed = push(self.source, self.target, overwrite, stop_revision, tag_selector, hooks=False)
            result = PullResult()
            result.__dict__.update(pushed.__dict__)
            if run_hooks:
                for hook in Branch.hooks["post_pull"]:
                    hook(result)
        return result

    def _is_decided(self, overwrite: Overwrite, stop_revision: RevisionId | None) -> bool:
        """Tell whether an answer about the source shows that nothing has to be sent, so that Breezy's own pull decides
        the rest."""
        remote = self.target.remote
        source, is_null = remote_of(self.source), stop_revision == NULL_REVISION
        if not is_null and (source is None or not source.is_in_repository_of(remote)):
            return False
        revision = stop_revision or self.source.last_revision()
        remote.look()
        if remote.confirm() and remote.history.checkouts:
            raise self.target.outdated()  # Breezy updates the tree by the difference to the tip that it assumed.
        if is_null:
            return True
        there = self.target.last_revision()
        if revision == there:
            return bool(self.source.tags.get_tag_dict().items() <= self.target.tags.get_tag_dict().items())
        if "history" in overwritten(overwrite):
            return False
        graph = self.source.repository.get_graph()
        if len(graph.get_parent_map([there, revision])) < 2:
            return False  # Only the server can tell.
        return not graph.is_ancestor(there, revision) and not graph.is_ancestor(revision, there)

    def copy_content_into(self, revision_id: RevisionId | None = None, tag_selector: Selector | None = None) -> None:
        """Make the server's branch a copy of the source."""
        push(self.source, self.target, False, revision_id, tag_selector, hooks=False)
        parent = self.source.get_parent()
        if parent:
            self.target.set_parent(parent)


class FromMirror(InterSameDataRepository):
    """A fetch from a mirror into a local repository. The packs are copied if a whole mirror is fetched into an empty
    repository."""

    source: HpssRepository
    target: Repository

    @staticmethod
    def is_compatible(source: Repository, target: Repository) -> bool:
        """Tell whether the source is on a server, and the target is a local repository of its format. For another
        format Breezy converts."""
        return (
            isinstance(source, HpssRepository)
            and isinstance(target, CHKInventoryRepository)
            and not isinstance(target, HpssRepository)
            and source._format.network_name() == target._format.network_name()
        )

    @spent(Part.LOCAL, "store")
    def fetch(
        self,
        revision_id: RevisionId | None = None,
        find_ghosts: bool = False,
        fetch_spec: Any = None,
        lossy: bool = False,
    ) -> FetchResult:
        """Fetch the history of a revision, or the result of a search."""
        source, target = self.source, self.target
        with self.lock_write():
            self._bring(revision_id, fetch_spec)
            for ghost in self._filled():
                super().fetch(ghost)
            if not lossy and not self._copy(fetch_spec):
                super().fetch(revision_id, find_ghosts=find_ghosts, fetch_spec=fetch_spec, lossy=lossy)
            signatures = source.remote.knowledge.map(SIGNATURES)
            if signatures:
                BrzRepository(target).add_signatures(signatures)
        return FetchResult()

    def search_missing_revision_ids(
        self,
        find_ghosts: bool = True,
        revision_ids: Iterable[RevisionId] | None = None,
        if_present_ids: Iterable[RevisionId] | None = None,
        limit: int | None = None,
    ) -> Any:
        """Return the revisions that the target lacks. The named revisions are received first, because the branch may
        not reach them."""
        self.source.have(revision_ids or ())
        return super().search_missing_revision_ids(
            find_ghosts=find_ghosts, revision_ids=revision_ids, if_present_ids=if_present_ids, limit=limit
        )

    def _bring(self, revision_id: RevisionId | None, fetch_spec: Any) -> None:
        """Receive the requested revisions. If there are several, some come from tags, whose revisions may be missing
        everywhere.

        Raises:
            NoSuchRevision: a single requested revision is missing everywhere.
        """
        heads = [revision_id] if fetch_spec is None else list(getattr(fetch_spec, "heads", None) or ())
        wanted = [head for head in heads if head not in (None, NULL_REVISION)]
        self.source.have(wanted)
        for tip in wanted if len(wanted) == 1 else ():
            if not self.source.has_revision(tip):
                raise NoSuchRevision(self.source, tip)

    def _filled(self) -> list[RevisionId]:
        """Return the ghosts of the target that the server has. Breezy does not look for ghosts below revisions that
        exist locally."""
        absent = self.source.remote.history.absent
        there = self.source.has_revisions(absent) if absent else set()
        return [*there - self.target.has_revisions(there)] if there else []

    def _copy(self, fetch_spec: Any) -> bool:
        """Copy the packs of the mirror if the whole mirror is wanted and the target is empty. Return True if they were
        copied."""
        if fetch_spec is None or self.target._fallback_repositories or self.source._fallback_repositories:
            return False
        if self.target._pack_collection.all_packs():
            return False
        if len(fetch_spec.get_keys()) != len(self.source.all_revision_ids()):
            return False
        mutter("hpss: the packs of the mirror are copied")
        return copy_packs(self.source, self.target)


def register() -> None:
    """Register the classes. Breezy tries the classes registered last first, so these precede its own, which fit any two
    branches."""
    load_formats()
    InterBranch.register_optimiser(ToServer)
    InterRepository.register_optimiser(FromMirror)
