"""`BranchHistory`: the history of a branch on a server, and the single request by which its mirror receives new
revisions.

The haves of the request come from the mirror, and from the local branches that the command has opened. Revisions of a
local branch need not be sent again, but then the mirror lacks parents of received revisions. `mirror.py` says how these
are inserted.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Final

from breezy import errors, trace
from breezy.config import GlobalStack

from smartserver.errors import MissingRevision
from smartserver.plugins import breezy_shim as hpss
from smartserver.plugins.breezy.checkouts import Checkouts
from smartserver.plugins.breezy.mirror import LARGE, Mirror, mirror_of
from smartserver.plugins.breezy.mirror_files import Damaged
from smartserver.plugins.breezy.place import Place
from smartserver.plugins.breezy.running import runs
from smartserver.plugins.breezy.spool import Spool
from smartserver.records.model import HERE, RevisionId
from smartserver.vcs.base import VcsError
from smartserver.vcs.bzr.kinds import SIGNATURES
from smartserver.vcs.bzr.repository import BrzRepository
from smartserver.verbs.repository_pull import MAX_HAVES
from smartserver.verbs.repository_stats import StatsResult

TRIES: Final = 3
"""The most requests for the history, if the mirror turns out to be damaged."""

MAX_BRANCHES: Final = 4
"""The most local repositories whose tips are named to a server, those opened last first."""

READ_WITHOUT: Final = "`smartserver cat`, `ls`, `log` and `export` with a URL do not need it"


class BranchHistory:
    """The history of one branch."""

    def __init__(self, branch: Place) -> None:
        self.checkouts = Checkouts()
        """The lightweight checkouts of the branch. The mirror must have the parents of their trees as well."""
        self.absent: set[RevisionId] = set()
        """Ghosts of the mirror and of the local branches."""
        self.refused: set[RevisionId] = set()
        """Revisions that the server was asked for by id and does not have."""
        self.stats: StatsResult | None = None
        """The statistics of the repository, if a command has requested them."""
        self._branch: Place = weakref.proxy(branch)
        self._mirror: Mirror | None = None

    def mirror(self, *, makes: bool = True) -> Mirror:
        """Return the mirror of the repository. With `makes`, create it on the disk if it does not exist."""
        if self._mirror is None:
            self._mirror = mirror_of(self._branch, makes=makes)
        return self._mirror

    def lacking_of_checkouts(self) -> list[RevisionId]:
        """Return the parents of trees that the mirror lacks."""
        return self.checkouts.lacking(lambda revision: self._branch.knowledge.met and self.mirror().has(revision))

    def tell_gone(self, revisions: Sequence[RevisionId]) -> None:
        """Warn of the given parents of trees that the server does not have."""
        self.checkouts.tell_gone([revision for revision in revisions if revision in self.refused], self._branch.url)

    def receive(self, ids: Sequence[RevisionId] = ()) -> None:
        """Request the revisions of the branch that the mirror lacks, and insert them. `ids`: request these revisions
        instead.

        Raises:
            MissingRevision: the server does not have one of `ids`.
        """
        tries = TRIES
        while True:
            haves: list[RevisionId] = []
            absent: list[RevisionId] = []
            if self._branch.knowledge.met:
                haves, absent = self.mirror().haves(self._branch.knowledge.tips())
            local = {} if self.checkouts or ids else self._local_haves(haves)
            for repository in dict.fromkeys(local.values()):
                absent += BrzRepository(repository).absent([tip for tip in local if local[tip] is repository])
            self.absent.update(absent)
            asked = [*haves, *local][:MAX_HAVES]
            also = ids or [revision for revision in self.lacking_of_checkouts() if revision not in self.refused]
            try:
                pulled = self._branch.repository.pull(
                    asked, [] if ids else [HERE], also, absent=absent, bulk=True, stats=runs("info")
                )
            except MissingRevision as missing:
                if ids or missing.revision in self.refused:
                    raise
                self.refused.add(missing.revision)
                self.tell_gone([missing.revision])
                continue  # The next request leaves it out.
            self.stats = pulled.stats
            self._branch.learned()
            spool = Spool(pulled)
            if not haves:
                self._announce(spool)
            spool.receive()
            if self._insert(spool, pulled.common(asked), haves, local):
                return
            tries -= 1
            if not tries:
                raise errors.BzrError(
                    f"the local mirror of {self._branch.url} was damaged {TRIES} times: remove it with "
                    f"`brz hpss-mirrors --clear {self._branch.url}`, then try again"
                )

    def _insert(
        self, spool: Spool, common: Sequence[RevisionId], haves: Sequence[RevisionId], local: dict[RevisionId, Any]
    ) -> bool:
        """Insert an answer. Return False if the mirror was damaged, and is empty now.

        `common`: the haves that the server has. `haves`: those of the mirror. `local`: the local haves, each with its
        repository.
        """
        before, mirror = self._replaced(), self.mirror()
        old = None if before is None else before.open()
        if old is not None:  # The repository was recreated, with some of its old revisions.
            local = local | dict.fromkeys(haves, old)
        of_local = [have for have in common if have in local]
        beside = []
        for repository in dict.fromkeys([local[have] for have in of_local]):
            tips = [have for have in of_local if local[have] is repository]
            if not ((spool.announced or repository is old) and mirror.adopt(repository, tips)):
                beside.append(repository)
        try:
            mirror.receive(spool, beside=beside, is_first=not haves)
        except Damaged:
            return False
        if not spool.announced:
            for repository in beside:
                mirror.rest_on(repository)
        if before is not None:
            before.rest_on(mirror.attach(mirror.open()))
        signatures = self._branch.knowledge.map(SIGNATURES)
        if signatures:
            mirror.add_signatures(signatures)
        return True

    def _replaced(self) -> Mirror | None:
        """Use the mirror of the repository that has answered. Return the previous mirror if it belongs to another
        repository."""
        before = self._mirror
        if before is None:
            self._mirror = mirror_of(self._branch)
        elif before.is_shared and (found := mirror_of(self._branch)) is not before:
            self._mirror = found
            return before
        return None

    def _local_haves(self, haves: Sequence[RevisionId]) -> dict[RevisionId, Any]:
        """Return revisions of the local branches that were opened, each with its repository."""
        found: dict[RevisionId, Any] = {}
        for reference in [*reversed(hpss.opened)]:  # A branch that is collected meanwhile leaves the list.
            branch = reference()
            if branch is None or getattr(branch, "remote", None) is not None or len(found) >= MAX_HAVES:
                continue
            if branch.repository._fallback_repositories:
                continue  # A branch stacked on one of a server reads the mirror, which cannot depend on it.
            try:
                BrzRepository(branch.repository).check_format()
                tip = branch.last_revision()
                if tip in haves:
                    continue
                # This is another object, since Breezy may lock its own for writing.
                repository = branch.controldir.open_branch(branch.name).repository
                own = BrzRepository(repository).complete_haves(self._branch.knowledge.tips(), MAX_HAVES // 2, [tip])
            except (errors.BzrError, OSError, VcsError):
                continue
            for revision in own:
                if revision not in haves:
                    found.setdefault(revision, repository)
            if len(set(found.values())) >= MAX_BRANCHES:
                break
        return found

    def _announce(self, spool: Spool) -> None:
        """Print the size of a first answer, if it is large."""
        limit: int | None = GlobalStack().get(LARGE.name)
        if limit is not None and spool.size > limit and not trace.is_quiet():
            said = "hpss: receiving the history of %s (%.1f MB), only this time; %s"
            trace.note(said, self._branch.url, spool.size / 1e6, READ_WITHOUT)
