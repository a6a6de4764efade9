"""`HpssBranch`: a branch on a server. What is read of it comes with one pull; each change is one request.

Its locks are this process's alone: a change is decided by the server, on what is there when it comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from breezy import errors, trace, urlutils
from breezy.branch import Branch, BranchFormat, BranchWriteLockResult, UnstackableBranchFormat
from breezy.lock import LogicalLockResult
from breezy.revision import NULL_REVISION

from smartserver.plugins.breezy import changes
from smartserver.plugins.breezy.commands import may_remember, running
from smartserver.plugins.breezy.commit import Commit
from smartserver.plugins.breezy.effects import EffectiveStack
from smartserver.plugins.breezy.moves import check_append, removed_tags, removes_tags
from smartserver.plugins.breezy.options import OptionConfig, OptionStore
from smartserver.plugins.breezy.patches import watch_trees
from smartserver.plugins.breezy.push import push
from smartserver.plugins.breezy.remote import Remote
from smartserver.plugins.breezy.repository import HpssRepository
from smartserver.plugins.breezy.tags import HpssTags
from smartserver.plugins.breezy.upkeep import ReconcileReport, reconcile
from smartserver.plugins.breezy.words import HAS_A_REVISION, NotOnServer
from smartserver.records.model import RevisionId
from smartserver.vcs.bzr.compat import BzrDir, RevisionNotPresent, branches_of_breezy, format_2a


class HpssBranchFormat(BranchFormat):
    """What kind of branch it is."""

    supports_reference_locations = False

    def get_format_description(self) -> str:
        """One line for a person."""
        return "branch of an hpss server"

    def network_name(self) -> bytes:
        """No server of Breezy's own knows it."""
        return b"hpss"

    def supports_tags(self) -> bool:
        """It has tags."""
        return True

    def make_tags(self, branch: HpssBranch) -> HpssTags:
        """The tags of a branch."""
        return HpssTags(branch, branch.remote)

    def initialize(self, controldir: object, *arguments: object, **options: object) -> NoReturn:
        """The first push makes a branch."""
        raise errors.UninitializableFormat(self)


class HpssBranch(Branch):
    """A branch of a repository on a server; opening it asks nothing."""

    def __init__(self, control: BzrDir, name: str, remote: Remote) -> None:
        self.controldir = control
        self.name = name
        self.remote = remote
        self._format = HpssBranchFormat()
        self._locks = 0
        self._mode: str | None = None
        self._store: OptionStore | None = None
        self._commit: Commit | None = None
        self._has_removed_tags = False
        watch_trees()
        self.repository = HpssRepository(control, remote)
        self._clear_cached_state()

    def __repr__(self) -> str:
        return f"HpssBranch({self.base})"

    @property
    def base(self) -> str:
        """Its URL."""
        url: str = self.controldir.user_url
        return urlutils.join_segment_parameters(url, {"branch": urlutils.escape(self.name)}) if self.name else url

    user_url = control_url = base

    @property
    def user_transport(self) -> Any:
        """The place of its control directory."""
        return self.controldir.root_transport

    control_transport = user_transport

    # -- what the pull says

    def _read_last_revision_info(self) -> tuple[int, RevisionId]:
        state = self.remote.state()
        return state.revno, state.tip or NULL_REVISION

    def revision_id_to_revno(self, revision_id: RevisionId) -> int:
        """The revno of a revision; that of the tip needs no history."""
        revno, tip = self.last_revision_info()
        if revision_id == tip:
            return revno
        number = self.remote.numbers.get(revision_id)
        if number is not None:
            return number
        if running().counts_from_nearest:
            return self._nearest(revision_id)
        return self._count(revision_id)

    def _count(self, revision_id: RevisionId) -> int:
        """The revno of a revision, counted from the tip's: the line of first parents may end at a ghost."""
        revno: int = branches_of_breezy().revision_id_to_revno(self, revision_id)
        return revno

    def _nearest(self, revision_id: RevisionId) -> int:
        """The number of a revision, or of the first before it that is in the branch: of a tree that was left behind."""
        if self.remote.content is not None:
            with self.remote.asking():
                self.remote.content.look_beside(revision_id)
        at = revision_id
        while at != NULL_REVISION:
            try:
                return self._count(at)
            except (errors.NoSuchRevision, errors.GhostRevisionsHaveNoRevno):
                at = self.repository.get_parent_map([at]).get(at, (NULL_REVISION,))[0]
        return 0

    def revision_id_to_dotted_revno(self, revision_id: RevisionId) -> tuple[int, ...]:
        """The number of a revision; what a tree rests on may have none any more, and be described all the same."""
        try:
            found: tuple[int, ...] = super().revision_id_to_dotted_revno(revision_id)
        except errors.NoSuchRevision:
            if running().needs_no_number:
                raise errors.GhostRevisionsHaveNoRevno(revision_id, revision_id) from None
            raise
        return found

    def get_rev_id(self, revno: int, history: list[RevisionId] | None = None) -> RevisionId:
        """The revision with a revno; what was asked for by number is known by that."""
        for revision, number in self.remote.numbers.items():
            if number == revno:
                return revision
        last = self.last_revision_info()[0]
        if not 0 <= revno <= last:
            raise errors.RevnoOutOfBounds(revno, (0, last))
        try:
            return self._from_tip(revno, history)
        except RevisionNotPresent:
            if self.remote.content is None:
                raise
            with self.remote.asking():
                self.remote.content.everything()  # It is below what was read.
            return self._from_tip(revno, history)

    def _from_tip(self, revno: int, history: list[RevisionId] | None) -> RevisionId:
        """The revision with a revno, counted from the tip's, which the server says."""
        try:
            found: RevisionId = super().get_rev_id(revno, history)
        except IndexError:  # It says a higher number than its line of first parents has revisions.
            raise errors.NoSuchRevision(self, revno) from None
        return found

    def get_stacked_on_url(self) -> NoReturn:
        """It is not stacked."""
        raise UnstackableBranchFormat(self._format, self.base)

    def set_stacked_on_url(self, url: str) -> NoReturn:
        """It cannot be."""
        raise UnstackableBranchFormat(self._format, self.base)

    def unbind(self) -> bool:
        """Whether it was bound: it never is."""
        return False

    def get_physical_lock_status(self) -> bool:
        """There are no locks."""
        return False

    def _gen_revision_history(self) -> list[RevisionId]:
        self._extend_partial_history()
        return list(reversed(self._partial_revision_history_cache))

    def _get_checkout_format(self, lightweight: bool = False) -> Any:
        return format_2a()

    # -- its configuration

    def _get_config_store(self) -> OptionStore:
        if self._store is None:
            self._store = OptionStore(self, self.remote)
        return self._store

    def _get_config(self) -> OptionConfig:
        return OptionConfig(self.remote, self.base)

    def get_config_stack(self) -> EffectiveStack:
        """Those of its options that have an effect here, and the user's."""
        return EffectiveStack(self)

    def _get_parent_location(self) -> str | None:
        location: str | None = self.get_config_stack().get("parent_location")
        return location or None  # Breezy removes a parent by an empty location.

    def _set_parent_location(self, url: str | None) -> None:
        with self.lock_write():
            self.get_config_stack().set("parent_location", url or "")

    def _set_nick(self, nick: str) -> None:
        with self.lock_write():
            self.get_config_stack().set("nickname", nick)

    nick = property(Branch._get_nick, _set_nick)

    def set_push_location(self, location: str) -> None:
        """Remember where it is pushed to."""
        with self.lock_write():
            self.get_config_stack().set("push_location", location)

    # -- changes

    def set_last_revision_info(self, revno: int, revision_id: RevisionId) -> None:
        """Move the tip, to a revision that was just made or to one that is there (`brz uncommit`)."""
        commit, self._commit = self._commit, None
        if commit is not None and commit.has(revision_id):
            commit.send(revision_id, revno)
            self._clear_cached_state()
            return
        if revision_id == NULL_REVISION:
            raise NotOnServer(HAS_A_REVISION)
        check_append(self.repository, self.base, revision_id)
        tags: list[str] = []
        if removes_tags():
            tags, self._has_removed_tags = removed_tags(self.repository, revision_id), True
        changes.move(self.remote, revision_id, revno, tags)
        self._clear_cached_state()

    def supports_tags(self) -> bool:
        """Whether it has tags; not once an uncommit has removed some: Breezy would remove more (`moves`)."""
        return not self._has_removed_tags

    def import_last_revision_info_and_tags(
        self, source: Branch, revno: int, revid: RevisionId, *, lossy: bool = False
    ) -> tuple[int, RevisionId]:
        """Take a commit made in a branch that is bound to this one, and its tags."""
        push(source, self, stop_revision=revid, revno=revno, lossy=lossy, hooks=False)
        return revno, revid

    def _get_check_refs(self) -> list[Any]:
        """Nothing to be looked at here: the server checks its branches with their repository."""
        return []

    def reconcile(self, thorough: bool = True) -> ReconcileReport:
        """There is nothing to reconcile where nothing is damaged."""
        return reconcile(self.remote)

    def get_commit_builder(
        self, parents: Sequence[RevisionId], config_stack: object = None, *arguments: Any, **options: Any
    ) -> Any:
        """What makes the revision of a commit in a lightweight checkout; `set_last_revision_info` sends that."""
        stack = self.get_config_stack() if config_stack is None else config_stack
        self._commit = Commit(self, self.repository, parents)
        return self._commit.builder(stack, *arguments, **options)

    def create_memorytree(self) -> Any:
        """A tree of its tip in memory."""
        from breezy.bzr.memorytree import MemoryTree

        return MemoryTree.create_on_branch(self)

    def store_uncommitted(self, creator: object) -> NoReturn:
        """It keeps none of a tree's changes (`brz switch --store`)."""
        raise errors.StoringUncommittedNotSupported(self)

    def get_unshelver(self, tree: object) -> None:
        """There is nothing to be brought back."""

    def break_lock(self) -> None:
        """Say that there is nothing to break."""
        trace.note("There are no locks to break: a push to %s locks nothing.", self.base)

    # -- locks

    def is_locked(self) -> bool:
        """Whether this object is."""
        return self._locks > 0

    def lock_read(self) -> LogicalLockResult:
        """Lock this object: the server needs no lock."""
        self._lock("r")
        return LogicalLockResult(self.unlock)

    def lock_write(self, token: object = None) -> BranchWriteLockResult:
        """As `lock_read`. Who locks it for writing wants to change it."""
        if may_remember():
            self.remote.assume()
        self._lock("w")
        return BranchWriteLockResult(self.unlock, None)

    def _lock(self, mode: str) -> None:
        self._locks += 1
        self._mode = "w" if mode == "w" else self._mode or mode
        self.repository.lock_read()

    def unlock(self) -> None:
        """Undo one lock; the last one writes the configuration."""
        try:
            if self._locks == 1 and self._mode == "w" and self._store is not None:
                self._store.save_changes()
        finally:
            self._locks -= 1
            self.repository.unlock()
            if not self._locks:
                self._mode = None
                self._clear_cached_state()

    def peek_lock_mode(self) -> str | None:
        """`r`, `w` or None."""
        return self._mode
