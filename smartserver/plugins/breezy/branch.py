"""`HpssBranch`: Breezy's own branch class, with the files of a server (`remote`) and a mirror as its repository.

Its locks exist only in this process. The server decides each change, on the state at that time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from breezy import errors, trace
from breezy.branch import BindingUnsupported, Branch, BranchWriteLockResult, UnstackableBranchFormat
from breezy.bzr.branch import BzrBranch8, BzrBranchFormat8
from breezy.bzr.tag import BasicTags
from breezy.config import TransportConfig
from breezy.lock import LogicalLockResult
from breezy.lockable_files import LockableFiles

from smartserver.plugins.breezy.change import OPTIONS_FILE, Outdated, objection
from smartserver.plugins.breezy.effects import EffectiveConfig, EffectiveStack
from smartserver.plugins.breezy.mirror_files import FileLock
from smartserver.plugins.breezy.push import push
from smartserver.plugins.breezy.remote import Remote
from smartserver.plugins.breezy.repository import HpssRepository, RevisionNotThere
from smartserver.plugins.breezy.running import current
from smartserver.plugins.breezy.upkeep import ReconcileReport, reconcile
from smartserver.records.model import RevisionId
from smartserver.vcs.bzr.compat import BzrDir, format_2a


class HpssBranchFormat(BzrBranchFormat8):
    """The format of a branch on a server: Breezy's own, without stacking and without nested trees."""

    supports_reference_locations = False

    def get_format_description(self) -> str:
        """Return the name of the format for users."""
        return "branch of an hpss server"

    def network_name(self) -> bytes:
        """Return the name of the format in Breezy's smart protocol. No server of Breezy's knows this name."""
        return b"hpss"

    def supports_stacking(self) -> bool:
        """Return False: a server stores whole branches."""
        return False

    def make_tags(self, branch: HpssBranch) -> HpssTags:
        """Return the tags of a branch."""
        return HpssTags(branch)

    def initialize(self, controldir: object, *arguments: object, **options: object) -> NoReturn:
        """Raise an error, because a branch is created by its first push."""
        raise errors.UninitializableFormat(self)


class HpssTags(BasicTags):
    """Breezy's own tags, for a branch whose remembered state may still be assumed."""

    branch: HpssBranch

    def lookup_tag(self, tag_name: str) -> RevisionId:
        """Return the revision of a tag. If it is the assumed tip, ask the server first: `brz tag` does nothing for a
        tag at the tip.

        Raises:
            NoSuchTag: the tag does not exist.
        """
        found: RevisionId = super().lookup_tag(tag_name)
        remote = self.branch.remote
        if remote.is_assumed and found == remote.there().tip and remote.confirm():
            raise Outdated(remote.url)
        return found

    def set_tag(self, tag_name: str, tag_target: RevisionId) -> None:
        """Set a tag.

        Raises:
            BzrError: servers do not accept that name.
        """
        if why := objection(tag_name):
            raise errors.BzrError(why)
        super().set_tag(tag_name, tag_target)


class HpssBranch(BzrBranch8):
    """A branch of a repository on a server."""

    remote: Remote
    repository: HpssRepository
    conf_store: Any

    def __init__(self, control: BzrDir, name: str, remote: Remote, repository: HpssRepository) -> None:
        self.remote = remote
        self._commits = False
        remote.branches.add(self)
        super().__init__(
            a_controldir=control,
            name=name,
            _repository=repository,
            _control_files=LockableFiles(remote.files, "lock", FileLock),
            _format=HpssBranchFormat(),
            ignore_fallbacks=True,
        )

    @property
    def user_transport(self) -> Any:
        """The transport of the control directory."""
        return self._user_transport

    def _get_base(self) -> str:
        url: str = self._user_transport.base
        return url

    def forget_files(self) -> None:
        """Drop the cached content of the files, which have changed."""
        self._clear_cached_state()
        self._tags_bytes = None
        if self.conf_store is not None and not self.conf_store.dirty_sections:
            self.conf_store.unload()

    def outdated(self) -> Outdated:
        """Return the error that makes the command run again. Options that the command set are dropped, because they
        were based on the old state."""
        if self.conf_store is not None:
            self.conf_store.unload()
        return Outdated(self.remote.url)

    def number_of(self, revision: RevisionId | None) -> int | None:
        """Return the number that a revision would have as the tip; None for the tip itself and for None.

        Raises:
            RevisionNotThere: the repository does not have the revision.
        """
        revno, tip = self.last_revision_info()
        if revision in (None, tip):
            return None
        self.repository.have([revision])
        if not self.repository.has_revision(revision):
            raise RevisionNotThere(f"The branch {self.user_url.rstrip('/')}", revision)
        return int(self.repository.get_graph().find_distance_to_null(revision, [(tip, revno)]))

    # -- features that a branch on a server lacks

    def get_bound_location(self) -> None:
        """Return None, because a branch on a server is not bound to another branch."""

    def get_old_bound_location(self) -> NoReturn:
        """Raise an error, because a branch on a server was never bound."""
        raise errors.UpgradeRequired(self.user_url)

    def get_master_branch(self, possible_transports: object = None) -> None:
        """Return None, because a branch on a server is not bound to another branch."""

    def bind(self, other: Branch) -> NoReturn:
        """Raise an error, because a branch on a server cannot be bound."""
        raise BindingUnsupported(self)

    def set_bound_location(self, location: str | None) -> NoReturn:
        """Raise an error, because a branch on a server cannot be bound."""
        raise BindingUnsupported(self)

    def unbind(self) -> bool:
        """Return False: the branch was not bound."""
        return False

    def get_stacked_on_url(self) -> NoReturn:
        """Raise an error, as Breezy expects of a branch that is not stacked."""
        raise UnstackableBranchFormat(self._format, self.base)

    def set_stacked_on_url(self, url: str) -> NoReturn:
        """Raise an error, because a branch on a server cannot be stacked."""
        raise UnstackableBranchFormat(self._format, self.base)

    def get_physical_lock_status(self) -> bool:
        """Return False: a server has no locks."""
        return False

    def break_lock(self) -> None:
        """Tell the user that there is no lock to break."""
        trace.note("There are no locks to break: a push to %s locks nothing.", self.base)

    def store_uncommitted(self, creator: object) -> NoReturn:
        """Raise an error, because a server stores no uncommitted changes (`brz switch --store`)."""
        raise errors.StoringUncommittedNotSupported(self)

    def get_unshelver(self, tree: object) -> None:
        """Return None, because no changes are stored."""

    def _get_checkout_format(self, lightweight: bool = False) -> Any:
        return format_2a()

    def _get_check_refs(self) -> list[Any]:
        """Return an empty list, because the server checks its branches with their repository."""
        return []

    def reconcile(self, thorough: bool = True) -> ReconcileReport:
        """Let the server verify the repository. An undamaged repository needs no reconciliation."""
        return reconcile(self.remote)

    # -- its options

    def get_config_stack(self) -> EffectiveStack:
        """Return the options of the branch that have an effect on a client, and the user's own."""
        return EffectiveStack(self)

    def _get_config(self) -> OptionConfig:
        return OptionConfig(self._transport)

    # -- locks

    def lock_write(self, token: object = None) -> BranchWriteLockResult:
        """Lock this object, and count in `remote.writes` that a command is going to change the branch."""
        if not self.is_locked():
            self.remote.writes += 1
        try:
            return super().lock_write(token)
        except BaseException:
            if not self.is_locked():
                self.remote.writes -= 1
            raise

    def lock_read(self) -> LogicalLockResult:
        """Lock this object: the server needs no lock."""
        return super().lock_read()

    def unlock(self) -> None:
        """Release one lock. Releasing the last lock sends the options. Errors of sending are raised, unlike in Breezy's
        own method."""
        is_last = self.control_files._lock_count == 1
        is_write = is_last and self.control_files._lock_mode == "w"
        try:
            if is_last and self.conf_store is not None:
                self.conf_store.save_changes()
        finally:
            self.control_files.unlock()
            if is_last:
                self.remote.writes -= is_write
                self.repository.unlock()
                self._clear_cached_state()
                self.conf_store = None
                if current() is None:
                    self.remote.forget()
                    self._tags_bytes = None

    # -- changes

    def _set_tags_bytes(self, bytes: bytes) -> Any:  # noqa: A002
        try:
            return super()._set_tags_bytes(bytes)
        except BaseException:
            self._tags_bytes = None
            raise

    def get_commit_builder(self, parents: Sequence[RevisionId], *arguments: Any, **options: Any) -> Any:
        """Begin a commit. Its revision is sent in the request that moves the tip."""
        self.repository.have(parents)
        self._commits = True
        self.repository.builds = True
        return super().get_commit_builder(parents, *arguments, **options)

    def set_last_revision_info(self, revno: int, revision_id: RevisionId) -> None:
        """Move the tip to a revision that was just made, or to an existing one (`brz uncommit`).

        Raises:
            OutOfDateTree: in a commit, the tip has moved since it was read.
        """
        commits, self._commits = self._commits, False
        try:
            super().set_last_revision_info(revno, revision_id)
        except Outdated:
            if commits:
                raise errors.OutOfDateTree(None) from None
            raise

    def import_last_revision_info_and_tags(
        self, source: Branch, revno: int, revid: RevisionId, lossy: bool = False
    ) -> tuple[int, RevisionId]:
        """Receive a commit and its tags from a branch that is bound to this one, in one request.

        Raises:
            BoundBranchOutOfDate: this branch has moved since.
        """
        try:
            push(source, self, stop_revision=revid, revno=revno, lossy=lossy, hooks=False, commits=True)
        except errors.DivergedBranches:
            raise errors.BoundBranchOutOfDate(source, self) from None
        return revno, revid


class OptionConfig(EffectiveConfig):
    """The options for Breezy's older interface (`Branch.get_config`). Each change is written at once."""

    def __init__(self, transport: Any) -> None:
        super().__init__(transport, OPTIONS_FILE)
        self._whole = TransportConfig(transport, OPTIONS_FILE)
        """The whole options file. Changes are written to it, so that options without an effect are kept."""

    def set_option(self, value: Any, name: str, section: str | None = None) -> None:
        """Set an option."""
        self._whole.set_option(value, name, section)

    def remove_option(self, option_name: str, section_name: str | None = None) -> None:
        """Remove an option."""
        self._whole.remove_option(option_name, section_name)
