"""`HpssRepository`: Breezy's own repository of format 2a, with the files of a mirror and the URL of the server's
repository.

Missing revisions are received when they are looked up: first the new ones of the branch, then others that the server
has, by id. Revisions that a write group of Breezy's adds are sent when the group ends. Only a commit is sent with the
move of the tip.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from breezy import errors, ui, urlutils
from breezy.bzr.groupcompress_repo import CHKInventoryRepository
from breezy.lockable_files import LockableFiles
from breezy.repository import FetchResult, Repository
from breezy.revision import NULL_REVISION

from smartserver.errors import shown
from smartserver.plugins.breezy.mirror_files import FileLock
from smartserver.plugins.breezy.remote import Remote
from smartserver.plugins.breezy.running import only_compares, runs
from smartserver.plugins.breezy.transport import path_of
from smartserver.plugins.breezy.upkeep import CheckReport, ReconcileReport, pack, reconcile, verify
from smartserver.plugins.breezy.words import NO_POLICY, PAGES, NotOnServer, NoTreePolicy
from smartserver.records.model import RevisionId
from smartserver.vcs.bzr.compat import BzrDir, format_2a, groupcompress
from smartserver.vcs.bzr.kinds import SIGNATURES
from smartserver.verbs.fields import MAX_IDS
from smartserver.verbs.map_update import EntryChange, MapKind, MapUpdateRequest

GroupCompressVersionedFiles: Any = groupcompress.GroupCompressVersionedFiles

NOTHING_TO_RECONCILE = "The server has checked every record: there is nothing to reconcile."

Parents = dict[RevisionId, tuple[RevisionId, ...]]


class RevisionNotThere(errors.NoSuchRevision):  # type: ignore[misc]  # Breezy is not typed.
    """A revision is missing. The user sees one line, where Breezy would report a fault of its own."""

    internal_error = False
    _fmt = "%(branch)s has no revision %(named)s"

    def __init__(self, branch: str, revision: RevisionId) -> None:
        super().__init__(branch, revision)
        self.named = shown(revision)


class _Parents:
    """The parents provider of a graph. It asks the mirror, and asks the server for revisions that the mirror lacks."""

    def __init__(self, repository: HpssRepository, stock: Any) -> None:
        self._repository = repository
        self._stock = stock

    def get_parent_map(self, revisions: Iterable[RevisionId]) -> Parents:
        return self._repository.parents_by(self._stock.get_parent_map, revisions)


class _Revisions(GroupCompressVersionedFiles):  # type: ignore[misc]
    """The texts of revisions, which `brz cat-revision` reads by their ids without reading a branch."""

    repository: HpssRepository

    def get_record_stream(self, keys: Iterable[tuple[bytes, ...]], *arguments: Any) -> Any:
        wanted = [*keys]
        self.repository.have([key[0] for key in wanted])
        return super().get_record_stream(wanted, *arguments)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


class HpssRepository(CHKInventoryRepository):  # type: ignore[misc]
    """The repository of a branch on a server."""

    def __init__(self, control: BzrDir, remote: Remote, *, makes: bool = True) -> None:
        """`makes`: True to create a mirror on the disk if the repository has none."""
        self.remote = remote
        self.mirror = remote.history.mirror(makes=makes)
        self.builds = False
        """True if the write group is that of a commit."""
        self._signed: list[RevisionId] = []
        self._is_bringing = False
        known = format_2a().repository_format
        files = LockableFiles(self.mirror.transport, "lock", FileLock)
        super().__init__(known, control, files, known._commit_builder_class, known._serializer)
        self.revisions.__class__ = _Revisions
        self.revisions.repository = weakref.proxy(self)
        self._writing = contextlib.ExitStack()
        self.mirror.attach(self)

    def __repr__(self) -> str:
        return f"HpssRepository({self.user_url})"

    # -- its place and its properties

    @property
    def user_transport(self) -> Any:
        """The transport of the repository. While the repository is unknown, the transport of the place where it was
        opened."""
        place, at = self.controldir.root_transport, self.remote.knowledge.at
        if at is None:
            return place
        return place.above(max(0, len(_parts(place.location.path)) - len(_parts(at))))

    def has_same_location(self, other: Repository) -> bool:
        """Tell whether another object reads the same mirror."""
        return isinstance(other, HpssRepository) and other.mirror is self.mirror

    def is_shared(self) -> bool:
        """Return True: any number of branches share a repository."""
        return True

    def make_working_trees(self) -> bool:
        """Return True, so that clones get working trees. Return False in commands that show or create a repository on a
        server, which has no working trees."""
        return not (runs("info") or runs("init-shared-repository"))

    def set_make_working_trees(self, new_value: bool) -> NoReturn:
        """Raise an error, because a server has no working trees."""
        raise NoTreePolicy(NO_POLICY)

    def get_physical_lock_status(self) -> bool:
        """Return False: a server has no locks."""
        return False

    def break_lock(self) -> None:
        """Do nothing, because a server has no locks."""

    def _warn_if_deprecated(self, branch: object = None) -> None:
        """Do not warn: the format is the current one."""

    # -- missing revisions

    def bring(self, revisions: Sequence[RevisionId], *, by_name: bool) -> bool:
        """Request missing revisions. Return True if a request was sent. `by_name`: as in `Remote.bring`."""
        if self._is_bringing or not revisions or self.is_in_write_group():
            return False
        self._is_bringing = True  # Receiving revisions looks them up, too.
        try:
            return self.remote.bring(revisions, by_name=by_name)
        finally:
            self._is_bringing = False

    def have(self, revisions: Iterable[RevisionId]) -> None:
        """Receive these revisions if the server has them. None are received in a write group, which may add the
        revisions itself."""
        wanted = [revid for revid in revisions if revid and revid != NULL_REVISION and not self.is_in_write_group()]
        for _ in range(2):
            with self.lock_read():
                here = super().has_revisions(wanted)
            lacking = [revid for revid in wanted if revid not in here]
            if not lacking or not self.bring(lacking, by_name=True):
                return

    def parents_by(self, read: Callable[[list[RevisionId]], Parents], revisions: Iterable[RevisionId]) -> Parents:
        """Return the parents of the `revisions` that exist. `read`: a function that reads parents from the mirror."""
        wanted = [*revisions]
        with self.lock_read():
            found = read(wanted)
            for _ in range(2):  # New revisions of the branch come first, then others that the server has.
                lacking = [revid for revid in wanted if revid not in found and revid != NULL_REVISION]
                if not lacking or not self.bring(lacking, by_name=False):
                    break
                found = read(wanted)
            return found

    def _make_parents_provider(self) -> _Parents:
        return _Parents(self, super()._make_parents_provider())

    def get_parent_map(self, revision_ids: Iterable[RevisionId]) -> Parents:
        """Return the parents of each given revision that exists."""
        return self.parents_by(super().get_parent_map, revision_ids)

    def get_known_graph_ancestry(self, revision_ids: Sequence[RevisionId]) -> Any:
        """Return the graph of some revisions and all their ancestors."""
        self.have(revision_ids)
        return super().get_known_graph_ancestry(revision_ids)

    def has_revisions(self, revision_ids: Iterable[RevisionId]) -> set[RevisionId]:
        """Return the members of `revision_ids` that exist."""
        wanted = [*revision_ids]
        if len(wanted) == 1 and self.remote.is_named(wanted[0]):
            self.have(wanted)
        else:
            self.get_parent_map(wanted)
        found: set[RevisionId] = super().has_revisions(wanted)
        return found

    def get_revisions(self, revision_ids: Iterable[RevisionId]) -> Any:
        """Return Breezy's `Revision` objects for some ids."""
        wanted = [*revision_ids]
        self.have(wanted)
        return super().get_revisions(wanted)

    def revision_tree(self, revision_id: RevisionId) -> Any:
        """Return the tree of a revision.

        Raises:
            RevisionNotThere: there is no such revision.
        """
        self.have([revision_id])
        try:
            return super().revision_tree(revision_id)
        except errors.NoSuchRevision as error:
            raise RevisionNotThere(self.user_url, revision_id) from error

    def revision_trees(self, revision_ids: Iterable[RevisionId]) -> Any:
        """Return the trees of revisions."""
        wanted = [*revision_ids]
        self.have(wanted)
        return super().revision_trees(wanted)

    # -- writing

    def fetch(
        self,
        source: Repository,
        revision_id: RevisionId | None = None,
        find_ghosts: bool = False,
        fetch_spec: Any = None,
        lossy: bool = False,
    ) -> FetchResult:
        """Copy revisions from another repository, and send them to the server."""
        if self.has_same_location(source):
            if revision_id not in (None, NULL_REVISION) and not self.has_revision(revision_id):
                raise errors.NoSuchRevision(source, revision_id)
            return FetchResult(0)
        self._settle()  # Revisions that are only local are missing on the server.
        return super().fetch(source, revision_id, find_ghosts=find_ghosts, fetch_spec=fetch_spec, lossy=lossy)

    def search_missing_revision_ids(self, other: Repository, *arguments: Any, **options: Any) -> Any:
        """Return the revisions of another repository that the server lacks."""
        self._settle()
        return super().search_missing_revision_ids(other, *arguments, **options)

    def rest_on(self, source: Any) -> None:
        """Read pushed revisions from the source of the push, so that the mirror is not changed. A stacked source is not
        used, because it may read the mirror."""
        if not self.has_same_location(source.repository) and not source.repository._fallback_repositories:
            with contextlib.suppress(errors.BzrError):
                self.mirror.rest_on(source.controldir.open_branch(source.name).repository)

    def _settle(self) -> None:
        """Copy the branch's history from local repositories into the mirror, before the mirror is written to."""
        if self._fallback_repositories and not self.is_in_write_group():
            self.mirror.settle(self.remote.tip())

    def _start_write_group(self) -> None:
        if not self.builds:
            tip = self.remote.tip()  # The group reads it, and nothing can be received in the group.
            self.have([] if tip is None else [tip])
        self._settle()
        self._writing.enter_context(self.mirror.writing(commits=self.builds))
        super()._start_write_group()

    def _abort_write_group(self) -> None:
        self.builds = False
        self._signed.clear()
        try:
            super()._abort_write_group()
        finally:
            self._writing.close()

    def _commit_write_group(self) -> Any:
        builds, self.builds = self.builds, False
        signed, self._signed = self._signed, []
        group = self._pack_collection._new_pack.revision_index
        new = [key[0] for _, key, *_ in group.iter_all_entries()]
        try:
            hint = super()._commit_write_group()
        finally:
            self._writing.close()
        if not builds and not only_compares():
            parents = super().get_parent_map(new)
            inner = {parent for named in parents.values() for parent in named}
            self.remote.send_beside(self.mirror.whole(), [revision for revision in new if revision not in inner])
        self._send_signatures(signed)
        return hint

    def sign_revision(self, revision_id: RevisionId, gpg_strategy: object) -> None:
        """Sign a revision. The signature is sent when the write group ends."""
        super().sign_revision(revision_id, gpg_strategy)
        self._signed.append(revision_id)

    def _send_signatures(self, revisions: Sequence[RevisionId]) -> None:
        """Send signatures. A signature that another user has sent meanwhile is not overwritten."""
        entries = [EntryChange(revision, self.get_signature_text(revision)) for revision in revisions]
        parts = [entries[at : at + MAX_IDS] for at in range(0, len(entries), MAX_IDS)]
        if parts:
            with self.remote.words():
                self.remote.change([], [MapUpdateRequest(SIGNATURES, MapKind.OPAQUE, part) for part in parts])

    # -- upkeep

    def pack(self, hint: object = None, clean_obsolete_packs: bool = False) -> None:
        """Let the server join the packs of the repository."""
        pack(self.remote, clean=clean_obsolete_packs)

    def check(self, revision_ids: object = None, callback_refs: object = None, check_repo: bool = True) -> CheckReport:
        """Let the server read the whole repository, branches included."""
        return CheckReport(verify(self.remote), (self.user_url, self._format) if check_repo else None)

    def reconcile(self, other: object = None, thorough: bool = False) -> ReconcileReport:
        """Let the server verify the repository. An undamaged repository needs no reconciliation."""
        done = reconcile(self.remote)
        ui.ui_factory.note(NOTHING_TO_RECONCILE)
        return done

    def reconcile_canonicalize_chks(self) -> NoReturn:
        """Raise an error, because a server stores pages as they were pushed."""
        raise NotOnServer(PAGES)

    def find_branches(self, using: bool = False) -> list[Any]:
        """Return the branches of the repository; none for `upgrade`, which processes only the repository.

        A check calls this first, and the same request verifies the branches.
        """
        if runs("upgrade"):
            return []
        if runs("check"):
            verify(self.remote)
        self.remote.look()
        place, control = self.user_transport, self.controldir
        found = []
        for ref in sorted(self.remote.knowledge.refs()):
            path = urlutils.escape(path_of(ref))
            found.append(type(control)(place.clone(path) if path else place, control._format).unasked(""))
        return found

    def gather_stats(self, revid: RevisionId | None = None, committers: bool | None = None) -> dict[str, Any]:
        """Return the facts for `brz info -v`, with the server's number of revisions and their size."""
        remote = self.remote
        remote.look()
        history = remote.history
        if history.stats is None and remote.knowledge.met:
            with remote.words():
                history.stats = remote.repository.learn_refs(stats=True)
        found: dict[str, Any] = super().gather_stats(revid, committers)
        stats = history.stats
        return found if stats is None else {**found, "revisions": stats.revisions, "size": stats.size}
