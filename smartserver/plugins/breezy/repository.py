"""`HpssRepository`: what of a repository on a server a pull brought, as a repository of Breezy's.

Questions of ancestry are answered from what came and from the local repository it came for. Whatever else is asked goes
to a repository that holds what came, on this disk (`shadow`), or in memory and stacked on the local one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NoReturn

from breezy import errors, gpg, trace, ui, urlutils
from breezy.lock import LogicalLockResult
from breezy.repository import FetchResult, Repository
from breezy.revision import NULL_REVISION

from smartserver.errors import shown
from smartserver.plugins.breezy.checkouts import parents_over
from smartserver.plugins.breezy.commands import running
from smartserver.plugins.breezy.content import Content
from smartserver.plugins.breezy.given import ids_given
from smartserver.plugins.breezy.remote import Remote
from smartserver.plugins.breezy.sending import INSERTS, WriteGroup, send_beside
from smartserver.plugins.breezy.shown import repository_of
from smartserver.plugins.breezy.signatures import Signatures, testament
from smartserver.plugins.breezy.stores import in_memory, repository_over
from smartserver.plugins.breezy.transport import path_of
from smartserver.plugins.breezy.upkeep import CheckReport, ReconcileReport, pack, reconcile, verify
from smartserver.plugins.breezy.words import NO_POLICY, PAGES, NotOnServer, NoTreePolicy, check_has
from smartserver.records.model import RevisionId
from smartserver.vcs.bzr.compat import BzrDir, format_2a, make_graph
from smartserver.vcs.bzr.repository import BrzRepository

NOTHING_TO_RECONCILE = "The server has checked every record: there is nothing to reconcile."


class RevisionNotThere(errors.NoSuchRevision):  # type: ignore[misc]  # Breezy is not typed.
    """A revision that is not there: to the user a line, where Breezy takes it for a fault of its own."""

    internal_error = False
    _fmt = "%(branch)s has no revision %(named)s"

    def __init__(self, branch: str, revision: RevisionId) -> None:
        super().__init__(branch, revision)
        self.named = shown(revision)


def heads_of(fetch_spec: Any) -> list[RevisionId]:
    """The revisions whose history a search of Breezy's names."""
    return [] if fetch_spec.is_empty() else list(getattr(fetch_spec, "heads", None) or fetch_spec.get_keys())


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


class _Parents:
    """What a graph asks for parents. It has no more than that: what it seems to have it is asked for, too."""

    def __init__(self, repository: HpssRepository) -> None:
        self._repository = repository

    def get_parent_map(self, revisions: Iterable[RevisionId]) -> dict[RevisionId, tuple[RevisionId, ...]]:
        return self._repository.get_parent_map(revisions)


class HpssRepository:
    """Not one of Breezy's classes: it must not have what it cannot answer."""

    def __init__(self, control: BzrDir, remote: Remote) -> None:
        self.controldir = control
        self.remote = remote
        self._format = format_2a().repository_format
        self._fallback_repositories: list[Repository] = []
        self._shadow: Repository | None = None
        self._read: Repository | None = None
        """What the shadow was made with. It asks for nothing: `whole` may rest on it, and would ask `whole` again."""
        self._beside: list[Repository] = []
        """What there is besides what was read: merged, committed, read before the branch moved, or out of its reach."""
        self._unreached: list[Repository] = []
        """Of those, what is out of its reach, which is whole: what was committed may be parts of revisions."""
        self._named = ids_given()
        """Revisions that the user named by tags or ids: the branch may not reach them."""
        self._signatures = Signatures(remote)
        self._in_group = False
        self._group: WriteGroup | None = None
        """What was inserted since the write group began."""
        self._locks = 0

    def __repr__(self) -> str:
        return f"HpssRepository({self.user_url})"

    # -- where and what it is

    @property
    def user_url(self) -> str:
        """Its URL, or as long as that is not known the one of the place it was opened at."""
        url: str = self.user_transport.base
        return url

    base = control_url = user_url

    @property
    def user_transport(self) -> Any:
        """Its place."""
        place = self.controldir.root_transport
        if not self.remote.is_known:
            return place
        return place.above(len(_parts(place.location.path)) - len(_parts(self.remote.look().at)))

    control_transport = user_transport

    def has_same_location(self, other: Repository) -> bool:
        """Whether another object is the same repository, and has what this one has: some read two branches of one."""
        return not running().reads_two_parts and getattr(other, "user_url", None) == self.user_url

    def supports_rich_root(self) -> bool:
        """As format 2a does."""
        return True

    def is_shared(self) -> bool:
        """Any number of branches share one."""
        return True

    def make_working_trees(self) -> bool:
        """What is cloned from it gets one. There are none on a server, be that asked for (`--no-trees`) or not."""
        return not running().shows_repository

    def set_make_working_trees(self, new_value: bool) -> NoReturn:
        """There are none."""
        raise NoTreePolicy(NO_POLICY)

    def get_physical_lock_status(self) -> bool:
        """There are no locks."""
        return False

    def _warn_if_deprecated(self, branch: object = None) -> None:
        """It is not."""

    # -- locks

    def is_locked(self) -> bool:
        """Whether this object is."""
        return self._locks > 0

    def is_write_locked(self) -> bool:
        """Nobody writes to it but by a request of its own."""
        return False

    def is_in_write_group(self) -> bool:
        """Whether a write group was started and has not ended."""
        return self._in_group

    def lock_read(self) -> LogicalLockResult:
        """Lock this object: the server needs no lock."""
        self._locks += 1
        if self._shadow is not None:
            self._shadow.lock_read()
        return LogicalLockResult(self.unlock)

    def lock_write(self, token: object = None) -> LogicalLockResult:
        """As `lock_read`."""
        return self.lock_read()

    def unlock(self) -> None:
        """Undo one lock."""
        self._locks -= 1
        if self._shadow is not None:
            self._shadow.unlock()

    # -- ancestry

    def get_parent_map(self, revisions: Iterable[RevisionId]) -> dict[RevisionId, tuple[RevisionId, ...]]:
        """The parents of those of `revisions` that are on either side."""
        found = self._parent_map(revisions := list(revisions))
        if self.remote.content is None and self.remote.branch_history.ask_above(set(revisions) - found.keys()):
            found = self._parent_map(revisions)
        for lost in self._named.intersection(revisions) - found.keys():
            self.bring_unreached(lost)
            found = self._parent_map(revisions)
        return found

    def unreached(self, revisions: Iterable[RevisionId]) -> list[tuple[RevisionId, Repository]]:
        """Those of some revisions that the branch does not reach, and where each is."""
        return [(each, beside) for each in revisions for beside in self._unreached if beside.has_revision(each)]

    def named(self, revision: RevisionId) -> None:
        """Have a revision that the user names by a tag: once it is asked for, where less than whole revisions came."""
        if self.remote.content is None:
            self.bring_unreached(revision)
        else:
            self._named.add(revision)

    def _parent_map(self, revisions: list[RevisionId]) -> dict[RevisionId, tuple[RevisionId, ...]]:
        came = self._parents(revisions)
        found: dict[RevisionId, tuple[RevisionId, ...]] = {}
        other = []
        for revision in revisions:
            if revision == NULL_REVISION:
                found[revision] = ()
            elif revision in came:
                found[revision] = came[revision] or (NULL_REVISION,)
            else:
                other.append(revision)
        for local in [
            *([] if self.remote.branch_history.target is None else [self.remote.branch_history.target]),
            *self._beside,
        ]:
            if other:
                with local.lock_read():
                    found.update(local.get_parent_map(other))
        return found

    def rest_on(self, other: Repository) -> None:
        """Have what another repository has, too: what was merged is there before it is committed."""
        repository = other.shadow() if isinstance(other, HpssRepository) else other
        self._beside.append(repository)
        if self._shadow is not None:
            before, self._shadow = self._shadow, self._lock(in_memory(self._shadow, repository))
            for _ in range(self._locks):
                before.unlock()

    def keep(self) -> None:
        """Have what the branch reaches now, wherever it is moved."""
        self.shadow()
        self.hold()

    def hold(self) -> None:
        """Have what was read of the branch, wherever it is moved."""
        if self._read is not None and self._read not in self._beside:
            self._beside.append(self._read)

    def _parents(self, revisions: Collection[RevisionId]) -> Mapping[RevisionId, tuple[RevisionId, ...]]:
        self.remote.look()
        content = self.remote.content
        if content is None:
            return self.remote.shadow.parents()
        with self.remote.asking():
            return content.parents_of(revisions)

    def _make_parents_provider(self) -> _Parents:
        return _Parents(self)

    def get_graph(self, other_repository: Repository | None = None) -> Any:
        """The graph of both sides, and of another repository's."""
        # Two that read two branches of the same repository have different parts of it.
        sides = [self] if other_repository is None else [self, other_repository]
        return make_graph([side._make_parents_provider() for side in sides])

    def has_revision(self, revision: RevisionId) -> bool:
        """Whether it is on either side."""
        return revision in self.get_parent_map([revision])

    def has_revisions(self, revisions: Iterable[RevisionId]) -> set[RevisionId]:
        """Those that are on either side."""
        return set(self.get_parent_map(revisions))

    def gather_stats(self, revid: RevisionId | None = None, committers: bool | None = None) -> dict[str, Any]:
        """What `brz info -v` tells, of what a branch has."""
        self.remote.look()
        content = self.remote.content
        if content is None or content.stats is None:
            found: dict[str, Any] = self.shadow().gather_stats(revid, committers)
            return found
        stats: dict[str, Any] = {"revisions": content.stats.revisions, "size": content.stats.size}
        if committers and revid is not None:
            found = self.shadow().gather_stats(revid, committers)
            return found | stats
        first = next((revision for revision, number in content.numbers.items() if number == 1), None)
        if revid is not None and revid != NULL_REVISION and first is not None:
            ends = [self.get_revision(each) for each in (first, revid)]
            stats["firstrev"], stats["latestrev"] = [(each.timestamp, each.timezone) for each in ends]
        return stats

    def fetch(
        self,
        source: Repository,
        revision_id: RevisionId | None = None,
        *,
        fetch_spec: Any = None,
        **options: object,
    ) -> FetchResult:
        """Have what another repository has, and the server too, where a command does not only compare.

        The request sends the history that `fetch_spec` or else `revision_id` names, or else the whole repository.

        Raises:
            NotBranchError: there is no branch here, only a repository.
            NoSuchRevision: the other repository has no `revision_id`.
        """
        if revision_id not in (None, NULL_REVISION):
            check_has(source, revision_id)
        is_there = isinstance(source, HpssRepository) and source.user_url == self.user_url
        if not is_there and not running().only_compares:
            with source.lock_read():
                if fetch_spec is not None:
                    wanted = heads_of(fetch_spec)
                else:
                    wanted = BrzRepository(source).heads() if revision_id is None else [revision_id]
            send_beside(self.remote, source, [revision for revision in wanted if revision != NULL_REVISION])
        self.rest_on(source)
        return FetchResult(0)

    # -- upkeep

    def pack(self, hint: object = None, clean_obsolete_packs: bool = False) -> None:
        """Have the server join its packs."""
        pack(self.remote, clean=clean_obsolete_packs)

    def check(self, revision_ids: object = None, callback_refs: object = None, check_repo: bool = True) -> CheckReport:
        """Have the server read all of it, branches included."""
        return CheckReport(verify(self.remote), (self.user_url, self._format) if check_repo else None)

    def reconcile(self, other: object = None, thorough: bool = False) -> ReconcileReport:
        """There is nothing to reconcile where nothing is damaged."""
        done = reconcile(self.remote)
        ui.ui_factory.note(NOTHING_TO_RECONCILE)
        return done

    def reconcile_canonicalize_chks(self) -> NoReturn:
        """What was pushed stays as it is."""
        raise NotOnServer(PAGES)

    def find_branches(self, using: bool = False) -> list[Any]:
        """All its branches, or those that a command has to treat by themselves besides the repository.

        A check looks at them first: they are verified by the same request.
        """
        if running().upgrades:
            return []
        if running().verifies:
            verify(self.remote)
        self.remote.look()
        place, control = self.user_transport, self.controldir
        found = []
        for ref in sorted(self.remote.knowledge.refs()):
            path = urlutils.escape(path_of(ref))
            found.append(type(control)(place.clone(path) if path else place, control._format).unasked(""))
        return found

    def get_revision(self, revision_id: RevisionId) -> Any:
        """What a revision says of itself."""
        try:
            return self.shadow().get_revision(revision_id)
        except errors.NoSuchRevision:
            if revision_id not in self._named or not self.has_revision(revision_id):
                raise
        return self.shadow().get_revision(revision_id)

    def revision_tree(self, revision_id: RevisionId) -> Any:
        """The tree of a revision.

        Raises:
            RevisionNotThere: there is no such revision.
        """
        try:
            return self.shadow().revision_tree(revision_id)
        except errors.NoSuchRevision as wrong:
            if revision_id not in self._named or not self.has_revision(revision_id):
                raise RevisionNotThere(self.user_url, revision_id) from wrong
        return self.shadow().revision_tree(revision_id)

    # -- signatures

    def has_signature_for_revision_id(self, revision_id: RevisionId) -> bool:
        """Whether a revision is signed."""
        return self._signature(revision_id) is not None

    def _signature(self, revision: RevisionId) -> bytes | None:
        """The signature of a revision, if it has one."""
        check_has(self, revision)
        return self._signatures.find(revision, self.shadow())

    def get_signature_text(self, revision_id: RevisionId) -> bytes:
        """The signature of a revision."""
        found = self._signature(revision_id)
        if found is None:
            raise errors.NoSuchRevision(self, revision_id)
        return found

    def sign_revision(self, revision_id: RevisionId, gpg_strategy: object) -> None:
        """Sign a revision; the end of the write group sends that."""
        self._signatures.sign(revision_id, self.shadow(), gpg_strategy)

    def verify_revision_signature(self, revision_id: RevisionId, gpg_strategy: Any) -> tuple[int, Any]:
        """What is to be said of a revision's signature, and of who signed."""
        signature = self._signature(revision_id)
        if signature is None:
            return gpg.SIGNATURE_NOT_SIGNED, None
        status, key, signed = gpg_strategy.verify(signature)
        return (status, key) if signed == testament(self.shadow(), revision_id) else (gpg.SIGNATURE_NOT_VALID, None)

    def verify_revision_signatures(
        self, revision_ids: Iterable[RevisionId], gpg_strategy: Any
    ) -> Iterator[tuple[RevisionId, int, Any]]:
        """The same of several."""
        for revision in revision_ids:
            yield revision, *self.verify_revision_signature(revision, gpg_strategy)

    def start_write_group(self) -> None:
        """Collect what is written until the group ends: signatures, and what a bundle has."""
        self._signatures.drop()
        self._in_group = True

    def abort_write_group(self, suppress_errors: bool = False) -> None:
        """Send nothing."""
        self._signatures.drop()
        group = self._end_group()
        if group is not None:
            group.abort()

    def commit_write_group(self) -> None:
        """Send what was written: one request for the revisions, then one for signatures of revisions that are there."""
        group = self._end_group()
        if group is not None:
            group.send(self.remote)
            self.rest_on(group.repository)
        self._signatures.send()

    def _end_group(self) -> WriteGroup | None:
        group, self._group, self._in_group = self._group, None, False
        return group

    # -- everything else

    def shadow(self) -> Repository:
        """All that came, and below it the local repository."""
        if self._shadow is None:
            self.remote.look()
            content = self.remote.content
            if content is not None:
                over, self._read = self.over(content), self.over(content, asks=False)
                self._shadow = self._lock(in_memory(over, *self._beside) if self._beside else over)
            else:
                self._shadow = self._read = self._lock(self.whole())
                self._bring_parents()
        return self._shadow

    def _bring_parents(self) -> None:
        """Have what the tree of a lightweight checkout rests on and the branch does not reach: what was merged.

        A command that only reads and has nothing merged does without, as what it rests on may be nowhere any more.
        """
        parents = parents_over(self)
        for revision in parents if len(parents) > 1 or running().fetches else ():
            self.bring_unreached(revision)

    def bring_unreached(self, revision: RevisionId) -> None:
        """Have a revision that the branch may not reach, if the server has it."""
        self._named.discard(revision)
        if revision != self.remote.branch_history.refused and not self.has_revision(revision):
            beside = HpssRepository(self.controldir, self.remote.for_one())
            if beside.remote.branch_history.ask_for(revision):
                self.rest_on(beside)
                self._unreached.append(beside.shadow())
            else:
                self.remote.branch_history.refused = revision

    def _lock(self, repository: Repository) -> Repository:
        """Lock a repository as this object is."""
        for _ in range(self._locks):
            repository.lock_read()
        return repository

    def over(self, content: Content, *, asks: bool = True) -> Any:
        """A repository of Breezy's that has what is in `content`; `asks`: and asks for what is not."""
        return repository_over(content, self.remote.asking, self.whole, asks=asks)

    def bring(self) -> None:
        """Have the whole history come, where less of it was read or the branch is as remembered: it goes elsewhere."""
        if self.remote.content is not None or self.remote.is_assumed:
            self.remote.content = self._shadow = self._read = None
            self.remote.branch_history.ask_anew()

    def whole(self) -> Repository:
        """The whole history that came, which is asked for where it was not yet."""
        made: Repository = repository_of(self.remote.shadow)
        return in_memory(made, *self._beside) if self._beside else made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._in_group and name in INSERTS:
            self._group = self._group or WriteGroup(self.shadow())
        if self._group is not None:
            return getattr(self._group.repository, name)
        trace.mutter("hpss: %s is read from what came", name)
        return getattr(self.shadow(), name)
