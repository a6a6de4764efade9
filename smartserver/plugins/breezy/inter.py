"""What goes between a local branch or repository and one on a server: found by Breezy in its registries."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from breezy.branch import Branch, BranchPushResult, GenericInterBranch, InterBranch, PullResult
from breezy.errors import BzrError, DivergedBranches, LocalRequiresBoundBranch
from breezy.foreign import ForeignRepository
from breezy.repository import FetchResult, InterRepository, Repository
from breezy.revision import NULL_REVISION

from smartserver.errors import shown
from smartserver.plugins.breezy.branch import HpssBranch
from smartserver.plugins.breezy.checkouts import Checkout, checkout_of
from smartserver.plugins.breezy.commands import Second, running
from smartserver.plugins.breezy.given import given
from smartserver.plugins.breezy.push import Overwrite, Selector, push
from smartserver.plugins.breezy.remote import GONE
from smartserver.plugins.breezy.repository import HpssRepository, heads_of
from smartserver.plugins.breezy.signatures import add_late
from smartserver.plugins.breezy.words import check_has
from smartserver.records.model import RevisionId
from smartserver.spans import Part, spent
from smartserver.vcs.bzr.compat import load_formats, overwritten


class FromServer(GenericInterBranch):
    """A pull: the one request is sent once it is known which repository it is for."""

    source: HpssBranch
    target: Branch

    @classmethod
    def is_compatible(cls, source: Branch, target: Branch) -> bool:
        """From a server to here."""
        return isinstance(source, HpssBranch) and not isinstance(target, HpssBranch)

    def pull(self, *arguments: Any, **options: Any) -> PullResult:
        """As Breezy's own."""
        self.source.remote.branch_history.is_for(self.target.repository)
        return super().pull(*arguments, **options)

    def push(self, *arguments: Any, **options: Any) -> BranchPushResult:
        """As Breezy's own, which locks the source first: that may rest on the target, which it would lock to read."""
        with self.target.lock_write():
            return super().push(*arguments, **options)

    def fetch(
        self, stop_revision: RevisionId | None = None, limit: int | None = None, lossy: bool = False
    ) -> FetchResult:
        """Bring the history of a revision, the tip's where none is named."""
        self.source.remote.branch_history.is_for(self.target.repository)
        with self.source.lock_read(), self.target.lock_write():
            wanted = self.source.last_revision() if stop_revision is None else stop_revision
            inter = InterRepository.get(self.source.repository, self.target.repository)
            if limit is None:
                return inter.fetch(wanted)
            return inter.fetch(fetch_spec=inter.search_missing_revision_ids(revision_ids=[wanted], limit=limit))


class ToServer(GenericInterBranch):
    """A push: one request."""

    source: Branch
    target: HpssBranch

    @classmethod
    def is_compatible(cls, source: Branch, target: Branch) -> bool:
        """From anywhere to a server."""
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
        """Bring the server's branch to where the source is: of a checkout, when something else is pulled into it.

        Raises:
            LocalRequiresBoundBranch: only a branch here can be bound.
        """
        if local:
            raise LocalRequiresBoundBranch
        with self.source.lock_read(), self.target.lock_read():
            result = self._pull_there(overwrite, stop_revision, tag_selector)
            if run_hooks:
                for hook in Branch.hooks["post_pull"]:
                    hook(result)
        return result

    def _pull_there(
        self, overwrite: Overwrite, stop_revision: RevisionId | None, tag_selector: Selector | None
    ) -> PullResult:
        content = self.target.remote.content
        wanted = self.source.last_revision() if stop_revision is None else stop_revision
        if content is not None:
            revno, there = self.target.last_revision_info()
            if wanted == there and self.source.tags.get_tag_dict().items() <= self.target.tags.get_tag_dict().items():
                return _unchanged(self.source, self.target, revno, there)
            if "history" not in overwritten(overwrite) and content.has_diverged(wanted, there):
                raise DivergedBranches(self.target, self.source)
        checkout = checkout_of(str(given("directory") or "."))
        if checkout is not None:
            self._read_basis(checkout, overwrites=bool(overwrite))
        pushed = push(self.source, self.target, overwrite, stop_revision, tag_selector, hooks=False)
        result = PullResult()
        result.__dict__.update(pushed.__dict__)
        return result

    def _read_basis(self, checkout: Checkout, *, overwrites: bool) -> None:
        """Read what the tree rests on and, where the branch is overwritten, what that was: it will be out of reach."""
        repository, remote = self.target.repository, self.target.remote
        basis, content = checkout.parents()[:1], remote.content
        if content is not None:
            if content.gone is not None:
                raise BzrError(GONE.format(shown(content.gone), remote.url))
            if given("verbose"):  # The report goes down from both tips to where the two part, and further.
                with remote.asking():
                    content.everything()
            return
        if overwrites or not repository.has_revisions(basis) >= set(basis):
            repository.keep()  # Which brings what the tree rests on.
            repository.rest_on(self.source.repository)
        if not repository.has_revisions(basis) >= set(basis):
            raise BzrError(GONE.format(shown(basis[0]), remote.url))

    def fetch(
        self, stop_revision: RevisionId | None = None, limit: int | None = None, lossy: bool = False
    ) -> FetchResult:
        """What is merged in a lightweight checkout: the server has it before it is committed.

        Else nothing: the push that moves the tip brings what it needs.
        """
        source, target = self.source.repository, self.target.repository
        wanted = self.source.last_revision() if stop_revision is None else stop_revision
        if running().second is Second.MERGED:
            target.fetch(source, wanted)
        elif isinstance(source, HpssRepository) and source.user_url == target.user_url:
            target.named(wanted)  # As `-r branch:URL` names it: it is there, out of the branch's reach.
        return FetchResult(0)

    def copy_content_into(self, revision_id: RevisionId | None = None, tag_selector: Selector | None = None) -> None:
        """Make the server's branch one like the source."""
        push(self.source, self.target, False, revision_id, tag_selector, hooks=False)
        parent = self.source.get_parent()
        if parent:
            self.target.set_parent(parent)


def _unchanged(source: Branch, target: Branch, revno: int, tip: RevisionId) -> PullResult:
    """What a pull says that has nothing to do."""
    result = PullResult()
    result.source_branch, result.target_branch, result.master_branch = source, target, target
    result.local_branch = None
    result.old_revno = result.new_revno = revno
    result.old_revid = result.new_revid = tip
    result.tag_updates, result.tag_conflicts = {}, set()
    return result


class FetchFromServer(InterRepository):
    """What a pull brought, put into a local repository without a detour."""

    supports_fetch_spec = True
    source: HpssRepository
    target: Repository

    @classmethod
    def is_compatible(cls, source: Repository, target: Repository) -> bool:
        """From a server to here. Into a repository of git Breezy converts what it reads."""
        return isinstance(source, HpssRepository) and not isinstance(target, (HpssRepository, ForeignRepository))

    def _heads(self) -> list[RevisionId]:
        """The tip, and whatever came: all of it may be in another local repository, and not in the target."""
        remote = self.source.remote
        tip, came = remote.look().tip, remote.branch_history.history().parents
        return [*came, *([] if tip is None or tip in came else [tip])]

    def _missing(self, heads: Iterable[RevisionId]) -> list[RevisionId]:
        """The ancestors of `heads` that came and are not here, parents first."""
        heads, history = list(heads), self.source.remote.branch_history
        if self.source.remote.content is not None:  # A look at the branch has told which revision it is.
            history.narrow_to(heads)
        came = history.history().parents
        with self.target.lock_read():
            elsewhere = set(heads) - came.keys() - self.target.get_parent_map(heads).keys()
        history.ask_above(elsewhere, tip=True)  # As tags are, where their history is wanted.
        missing, lacking = self._compare(heads)
        if lacking:  # What is had here rests on ghosts that are none on the server, or it was thought to go elsewhere.
            self.source.remote.branch_history.ask_again(lacking, self.target)
            missing, _ = self._compare(heads)
        return missing

    def _compare(self, heads: list[RevisionId]) -> tuple[list[RevisionId], set[RevisionId]]:
        """The ancestors of `heads` that came and are not here, and what they rest on and is neither."""
        history = self.source.remote.branch_history.history()
        came = history.reached(heads)
        with self.target.lock_read():
            here = self.target.get_parent_map(came)
            missing = [revision for revision in came if revision not in here]
            below = history.rests_on(missing) | (set(heads) & self.source.has_revisions(heads)) - set(came)
            return missing, below - set(self.target.get_parent_map(below))

    def search_missing_revision_ids(
        self,
        find_ghosts: bool = True,
        revision_ids: Iterable[RevisionId] | None = None,
        if_present_ids: Iterable[RevisionId] | None = None,
        limit: int | None = None,
    ) -> Search:
        """What is missing here of the history of some revisions, or of all; `limit`: the first revisions of that."""
        required = [revision for revision in revision_ids or () if revision != NULL_REVISION]
        self._check_there(required)
        named = revision_ids is not None or if_present_ids is not None
        heads = [*required, *(if_present_ids or ())] if named else self._heads()
        return Search(self._missing(heads)[:limit])

    @spent(Part.LOCAL, "store")
    def fetch(self, revision_id: RevisionId | None = None, *, fetch_spec: Any = None, **options: object) -> FetchResult:
        """Bring the history of a revision, or what a search has found."""
        with ExitStack() as locks:
            locks.enter_context(self.target.lock_write())
            if fetch_spec is not None:
                heads = heads_of(fetch_spec)
                if len(heads) == 1:  # Of several some are tags, which may be of what is nowhere.
                    self._check_there(heads)
            elif revision_id is None:
                heads = self._heads()
            else:
                heads = [] if revision_id == NULL_REVISION else [revision_id]
                self._check_there(heads)
            for head, beside in self.source.unreached(heads):
                self.target.fetch(beside, head)
            missing = self._missing(heads)
            if missing:
                self.source.remote.branch_history.insert(self.target, missing)
            add_late(self.source.remote, self.target)
            return FetchResult(len(missing))

    def _check_there(self, revisions: list[RevisionId]) -> None:
        for revision in set(revisions) - self.source.has_revisions(revisions):
            self.source.named(revision)  # Another branch may reach it, or none.
            check_has(self.source, revision)


class Search:
    """The result of a search, as far as a fetch reads it."""

    def __init__(self, revisions: list[RevisionId]) -> None:
        self.heads: set[RevisionId] = set()
        self._revisions = revisions

    def get_keys(self) -> list[RevisionId]:
        """The revisions."""
        return self._revisions

    def is_empty(self) -> bool:
        """Whether there are none."""
        return not self._revisions


def register() -> None:
    """Let Breezy find them, before its own that fit any two: what was registered last is asked first."""
    load_formats()
    InterBranch.register_optimiser(FromServer)
    InterBranch.register_optimiser(ToServer)
    InterRepository.register_optimiser(FetchFromServer)
