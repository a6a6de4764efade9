"""A push: changesets, heads of branches, bookmarks, phases and markers in one request; the server decides.

The first request is planned on cached state, without asking the server. Mercurial's own checks run on that state, but a
refused change is sent all the same, because other users may have changed the remote since. Each answer contains the
state of the remote. If the server refuses, the push is planned again on that state, and Mercurial's checks may refuse
it. If the server accepts, and its state shows more to send than the cache did, another request sends that.
"""

# Theory of operation
# ===================
#
# `push_bundle` takes the place of Mercurial's `exchange._pushbundle2`. Discovery before it is Mercurial's own and
# runs on `remote.Remote`, which answers from the cache.
#
# 1) `_check` runs Mercurial's checks (new heads, new branches, hooks). On cached state a refusal is swallowed.
# 2) `_changes` makes one request's worth of updates: heads for each branch, entries of the maps of bookmarks, markers
#    and public changesets.
# 3) `_send` makes the request. The answer brings the state.
# 4) On success `_discover_remainder` finds what the cached state did not show. Mostly that is nothing.
# 5) On a refusal that stale state explains (`STALE`), discovery and checks run again on the new state. Now a refusal
#    of Mercurial's is final, so users read its stock messages.
#
# The hard case is a head that obsolescence makes disappear. The server drops it by the markers of the same request,
# the client names the head that takes its place, and where the server cannot count heads as Mercurial does, it checks
# that each of its heads is known here instead (`Growth.COVERED`).

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
from mercurial import discovery, error, exchange, node, phases, scmutil
from mercurial.i18n import _

from smartserver.client.push import Changes, PushRequest
from smartserver.client.updates import NewRepository, Outcome, PushOutcome, RefUpdate
from smartserver.errors import (
    DivergedBranches,
    KnownRevisions,
    NewHeads,
    NoSuchBranch,
    RepositoryExists,
    StaleEntry,
    WrongVcs,
    shown,
)
from smartserver.plugins.mercurial.evolution import branch_of, dropped_heads, report_markers, uncounted_heads
from smartserver.plugins.mercurial.markers import MarkerMemory, marker_updates
from smartserver.plugins.mercurial.remote import Remote, RequestLevel, in_utf8
from smartserver.plugins.mercurial.words import refusal
from smartserver.records.model import Plan, Tip
from smartserver.spans import Part, spent
from smartserver.vcs.hg.kinds import BOOKMARKS, KINDS, PUBLIC
from smartserver.vcs.hg.markers import KnownVersion
from smartserver.vcs.hg.plan import plan
from smartserver.vcs.hg.repository import HgRepository
from smartserver.vcs.hg.system import HG
from smartserver.verbs.fields import MAX_NAME
from smartserver.verbs.map_update import EntryChange, How, MapKind, MapUpdateRequest, Verdict
from smartserver.verbs.repository_create import CreateRequest, KindField, repository_create
from smartserver.verbs.rules import Create, Growth

NEW = NewRepository(HG, KINDS)

Bookmark = tuple[bytes, bytes, bytes]
"""Name, old and new changeset (empty for none), as in `pushoperation.outbookmarks`."""

STALE = (DivergedBranches, NewHeads, NoSuchBranch, StaleEntry)
"""Refusals of a push that was planned on stale state, which is then planned again."""

RACES = (DivergedBranches, StaleEntry)
"""Refusals that show, if the state was current, that another push changed it meanwhile."""


class HgSource:
    """The local repository, as the source of a push."""

    def __init__(self, local: HgRepository) -> None:
        self._local = local

    def plan(self, tips: Iterable[bytes], haves: Iterable[bytes]) -> Plan:
        """Return the plan for the revisions that `tips` reach and a remote with `haves` lacks. Tips that only the
        remote has are ignored."""
        return plan(self._local, filter(self._local.has, tips), haves)


class View(NamedTuple):
    """The state of the remote that was known before a request."""

    is_cached: bool
    """True if the view is cached state, because this command has made no request before."""
    version: KnownVersion | None
    heads: list[bytes]
    evolves: bool
    publishes: bool


def push_bundle(operation: Any) -> None:
    """Send all parts of a push, in place of `exchange._pushbundle2`."""
    operation.stepsdone |= {b"changesets", b"phases", b"obsmarkers", b"bookmarks"}
    HgPush(operation).run()


class HgPush:
    """One push. Mercurial's object for the push, `operation`, has the changes that are still to be sent; Mercurial's
    discovery adds them."""

    def __init__(self, operation: Any) -> None:
        self._operation = operation
        self._remote: Remote = operation.remote.remote
        self._local = HgRepository(operation.repo)
        self._missing: Sequence[bytes] = ()
        """The changesets that the next request sends."""

    @spent(Part.LOCAL, "plan the push")
    def run(self) -> None:
        """Send requests until nothing is left to send. One request is enough unless it was planned on stale state."""
        operation, remote = self._operation, self._remote
        if not operation.outgoing.missing and not self._map_updates() and not remote.level:
            # Cached state says that there is nothing to send.
            remote.ask_whether_there(RequestLevel.REFS if remote.publishes else RequestLevel.GRAPH)
            self._discover()
        if operation.outgoing.missing:
            operation.repo.hook(b"preoutgoing", throw=True, source=b"push")
        self._check()
        while any(changes := self._changes()):
            view = View(not remote.level, remote.version, remote.heads(), remote.evolves, remote.publishes)
            outcome = self._send(*changes)
            reason = outcome.error()
            if reason is None:
                self._report(outcome, view)
                self._discover_remainder(view)
            elif view.is_cached and isinstance(reason, STALE):
                self._discover()
                self._check()
            elif isinstance(reason, RACES):
                raise error.Abort(_(b"remote repository changed while pushing - please try again"))
            else:
                with remote.words():
                    raise reason
        if remote.is_new:
            create_repository(remote)

    # ---- the changes to send

    def _discover(self) -> None:
        operation = self._operation
        operation.outbookmarks, operation.bkresult, operation.outobsmarkers = [], None, set()
        for computed in ("futureheads", "fallbackheads"):  # They were computed from the previous plan.
            vars(operation).pop(computed, None)
        exchange._pushdiscovery(operation)

    def _discover_remainder(self, view: View) -> None:
        """After a request, find the changes that are left to send, which the view before the request did not show."""
        operation, remote = self._operation, self._remote
        self._missing = ()
        operation.outbookmarks, operation.bookmarks, operation.outobsmarkers = [], (), set()
        operation.outdatedphases = operation.fallbackoutdatedphases = []
        is_recreated = view.version is not None and remote.version is not None and view.version[0] != remote.version[0]
        steps = [b"bookmarks"] if view.is_cached else []
        steps += [b"phase"] if view.publishes and not remote.publishes else []
        steps += [b"obsmarker"] if remote.evolves and not view.evolves else []
        for step in exchange.pushdiscoveryorder if is_recreated else steps:
            exchange.pushdiscoverymapping[step](operation)
        if is_recreated and operation.outgoing.missing:
            self._check()  # The new repository accepted the request, but lacks more changesets.

    def _check(self) -> None:
        """Run Mercurial's own checks of the changesets to be sent. A refusal on cached state does not count."""
        operation = self._operation
        operation.pushbranchmap = None
        operation.ui.pushbuffer(error=True)
        try:
            exchange._pushcheckoutgoing(operation)
        except error.StateError:
            if self._remote.level:
                raise
            operation.pushbranchmap = None
            operation.ui.popbuffer()  # Its messages do not count either.
            operation.ui.pushbuffer()
        finally:
            operation.ui.status(operation.ui.popbuffer())
        self._missing = operation.outgoing.missing
        if self._missing:
            operation.repo.prepushoutgoinghooks(operation)

    def _changes(self) -> Changes:
        """Return the changes of the next request: heads of branches, and entries of maps."""
        for name, _old, new in self._operation.outbookmarks:
            if new and self._operation.repo[new].phase() == phases.secret:
                raise error.Abort(_(b"cannot push bookmark %s as it points to a secret changeset") % name)
        maps = self._map_updates()
        return [*self._branch_updates(), *self._published_heads()] or self._existence_checks(maps), maps

    def _map_updates(self) -> list[MapUpdateRequest]:
        """Return changes of markers, of bookmarks, and of the public changesets of a repository that does not
        publish."""
        operation, remote = self._operation, self._remote
        found = bookmark_updates(operation.outbookmarks)
        if operation.outobsmarkers:
            incarnation = b"" if remote.version is None else remote.version[0]
            found = [*marker_updates(self._memory.unsent(operation.outobsmarkers, incarnation)), *found]
        if not remote.publishes:
            found += phase_updates(self._published())
        return found

    def _published(self) -> dict[bytes, None]:
        operation = self._operation
        return dict.fromkeys(ctx.node() for ctx in (*operation.outdatedphases, *operation.fallbackoutdatedphases))

    def _branch_updates(self) -> list[RefUpdate]:
        """Return updates for each branch that has new changesets, or where markers make a head obsolete."""
        operation, local = self._operation, self._local
        dropped = dropped_heads(operation, local)
        replacements: dict[bytes, list[bytes]] = {}
        for dropped_head in dropped.values():
            replacements.setdefault(dropped_head.branch, []).extend(dropped_head.replacements)
        by_branch: dict[bytes, list[bytes]] = {branch: [] for branch in replacements}
        for changeset in self._missing:
            by_branch.setdefault(branch_of(local, changeset), []).append(changeset)
        bookmarked = discovery._nowarnheads(operation) if self._missing else set()
        create = Create.YES if operation.newbranch or operation.force else Create.NO
        found = []
        for branch, changesets in sorted(by_branch.items()):
            name = in_utf8(branch)
            if len(name) > MAX_NAME:
                words = f"the branch {shown(name)} has a name of {len(name)} bytes"
                raise refusal(f"{words}: a server takes at most {MAX_NAME}")
            new = local.heads_of(changesets)
            heads = {head: self._tip(head) for head in (*new, *replacements.get(branch, ()))}
            there = {tip.id: tip for tip in self._remote.knowledge.refs().get(name, ())}
            growth = Growth.NONE
            if operation.force or (there and bookmarked.issuperset(new)):
                growth = Growth.ANY
            elif uncounted_heads(operation, branch, dropped):
                # The server counts them. So instead of counting, it checks that each of its heads is known here.
                growth, heads = Growth.COVERED, {**heads, **there}
            tips = list(heads.values())
            found.append(RefUpdate(name, tips[0].id, create=create, heads=tips, growth=growth))
        return found

    def _published_heads(self) -> list[RefUpdate]:
        """Return updates for changesets that become public and that no head of the server reaches, because the server
        dropped them as obsolete."""
        local, remote = self._local, self._remote
        if remote.publishes or not remote.evolves:
            return []
        heads = [node for node in (*remote.heads(), *self._missing) if local.has(node)]
        return [
            RefUpdate(in_utf8(branch_of(local, head)), head, heads=(self._tip(head),), growth=Growth.ANY)
            for head in self._published()
            if not local.is_below(head, heads)
        ]

    def _tip(self, changeset: bytes) -> Tip:
        log = self._local.changesets
        return Tip(changeset, closed=bool(log.branchinfo(log.rev(changeset))[1]))

    def _existence_checks(self, maps: Sequence[MapUpdateRequest]) -> list[RefUpdate]:
        """Return updates that change nothing, but fail if the remote was recreated without the changesets that entries
        name."""
        entries = [(update.map, entry) for update in maps for entry in update.entries]
        named = [bytes.fromhex(entry.key.decode()) if table == PUBLIC else entry.value for table, entry in entries]
        found = [head for head in named if head is not None and self._local.has(head)]
        return [
            RefUpdate(in_utf8(branch_of(self._local, head)), head, create=Create.NO, heads=(self._tip(head),))
            for head in found
        ]

    @cached_property
    def _memory(self) -> MarkerMemory:
        return self._remote.marker_memory(self._local)

    # ---- a request

    def _send(self, heads: Sequence[RefUpdate], maps: Sequence[MapUpdateRequest]) -> PushOutcome:
        remote = self._remote

        def replan() -> Changes:
            """Plan again on the remote's state, which is not as expected, and return the changes."""
            remote.level = max(remote.level, RequestLevel.REFS)
            self._discover()
            self._check()
            again, of_maps = self._changes()
            return again or heads, of_maps

        new = msgspec.structs.replace(NEW, exclusive=remote.is_new)
        is_likely = self._is_likely()
        source = HgSource(self._local)
        request = PushRequest(
            heads,
            source,
            new,
            maps,
            maps_first=True,
            atomic=True,
            options=push_options(self._operation.pushvars),
            replan=replan,
            is_likely=is_likely,
        )
        with remote.words(), _exclusively(remote), remote.progress(b"sending") as progress:
            remote.repository.sent = lambda _, count, total: progress.update(count, total=total)
            outcome = remote.repository.push(request)
        remote.is_new = False
        remote.level = max(remote.level, RequestLevel.REFS)
        if outcome.error() is None:
            remote.pushed.update(tip.id for done in outcome.refs for tip in done.update.heads)
        return outcome

    def _is_likely(self) -> bool:
        """Tell whether the server probably has the oldest changesets to send: they are public, so a server had them
        before. If the newest changeset is public, too, that may have been another server, unless the repository was
        cloned from this one."""
        if not self._missing:
            return False
        repository = self._operation.repo
        oldest, newest = (repository[self._missing[end]].phase() == phases.public for end in (0, -1))
        return oldest and (not newest or repository.ui.config(b"paths", b"default") == self._remote.url)

    # ---- its outcome

    def _report(self, outcome: PushOutcome, view: View) -> None:
        """Print the server's results as Mercurial's own server would, and remember which markers it has now."""
        operation, version = self._operation, self._remote.version
        is_moved = any(done.outcome is Outcome.DONE for done in outcome.refs)
        if self._missing:
            if not view.heads and outcome.revisions == len(self._missing) and self._remote.has_unknown_heads():
                # No head was known before. The server has other changesets, and had none of these.
                operation.remote.warn_unrelated(operation.ui)
            operation.repo.hook(b"outgoing", node=node.hex(self._missing[0]), source=b"push")
            self._report_changesets(outcome.revisions, is_new=bool(outcome.revisions or is_moved or not view.is_cached))
        report_markers(operation, outcome, view.heads)
        self._report_bookmarks(outcome)
        is_locked = operation.trmanager is not None
        if operation.outobsmarkers and version is not None and is_locked:
            entries = [entry for done in outcome.maps for entry in done.entries]
            is_changed = is_moved or any(entry.verdict is Verdict.DONE for entry in entries)
            self._memory.sent(operation.outobsmarkers, view.version, version, is_changed=is_changed)

    def _report_changesets(self, count: int, *, is_new: bool) -> None:
        """Print how many changesets the server added. `is_new`: False if the server had all of them before the push, so
        that Mercurial reports that nothing was found."""
        operation = self._operation
        if is_new:
            operation.cgresult = 1
            operation.ui.status(_(b"remote: added %d changesets\n") % count)
        else:
            scmutil.nochangesfound(operation.ui, operation.repo, operation.outgoing.excluded)
            operation.fallbackheads = operation.futureheads  # The server had all of them.

    def _report_bookmarks(self, outcome: PushOutcome) -> None:
        operation = self._operation
        entries = [entry for done in outcome.maps if done.update.map == BOOKMARKS for entry in done.entries]
        for (name, old, new), entry in zip(operation.outbookmarks, entries, strict=False):
            action = b"update" if old and new else b"export" if new else b"delete"
            if entry.verdict is Verdict.DONE:
                operation.ui.status(exchange.bookmsgmap[action][0] % name)
            elif action == b"delete":  # Another user removed it. One that did not have to move is not mentioned.
                operation.ui.warn(_(b"bookmark %s does not exist on the local or remote repository!\n") % name)
                operation.bkresult = 2


def push_options(variables: Iterable[bytes] | None) -> list[str]:
    """Return the variables of `hg push --pushvars` as push options."""
    for each in variables or ():
        if b"=" not in each:
            words = _(b"unable to parse variable '%s', should follow 'KEY=VALUE' or 'KEY=' format")
            raise error.Abort(words % each)
    return [each.decode("utf-8", "backslashreplace") for each in variables or ()]


# ---- changes without a push


def create_repository(remote: Remote) -> None:
    """Create the repository.

    Raises:
        RepoError: the repository exists.
    """
    kinds = [KindField(kind.name, kind.check, kind.base) for kind in KINDS]
    with remote.words(), _exclusively(remote):
        remote.repository.ask((repository_create, CreateRequest(HG, kinds, exclusive=True)))
    remote.is_new = False


@contextmanager
def _exclusively(remote: Remote) -> Iterator[None]:
    """If a repository is to be created but already exists, with this or another system, raise Mercurial's error for
    that."""
    try:
        yield
    except (KnownRevisions, RepositoryExists, WrongVcs) as cause:
        if not remote.is_new:
            raise
        raise error.RepoError(_(b"repository %s already exists") % remote.url) from cause


def change_bookmark(remote: Remote, name: bytes, old: bytes, new: bytes) -> bool:
    """Create, move or remove one bookmark if it has the expected value. Return True if it had."""
    change = (name, node.bin(old) if old else b"", node.bin(new) if new else b"")
    with remote.words():
        reason = remote.repository.push(PushRequest([], maps=bookmark_updates([change]))).error()
        if reason is not None and not isinstance(reason, StaleEntry):
            raise reason
    return reason is None


def change_phase(remote: Remote, name: bytes) -> bool:
    """Make one changeset public. Return True."""
    if not remote.publishes:
        with remote.words():
            reason = remote.repository.push(PushRequest([], maps=phase_updates([node.bin(name)]))).error()
            if reason is not None:
                raise reason
    return True


def bookmark_updates(bookmarks: Sequence[Bookmark]) -> list[MapUpdateRequest]:
    """Return changes of bookmarks. The server makes all of them or none: each bookmark must have its expected value."""
    entries = [EntryChange(in_utf8(name), new or None, How.EQUAL, old or None) for name, old, new in bookmarks]
    return [MapUpdateRequest(BOOKMARKS, MapKind.OPAQUE, entries, strict=True)] if entries else []


def phase_updates(changesets: Iterable[bytes]) -> list[MapUpdateRequest]:
    """Return changes that make changesets public."""
    entries = [EntryChange(changeset.hex().encode(), b"1", How.SET) for changeset in changesets]
    return [MapUpdateRequest(PUBLIC, MapKind.OPAQUE, entries)] if entries else []
