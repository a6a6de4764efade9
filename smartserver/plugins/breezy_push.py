"""A push: a local branch's tip, history and tags to a branch on a server, in one request."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from breezy import errors, trace
from breezy.branch import Branch, BranchPushResult
from breezy.revision import NULL_REVISION

from smartserver.client.repository import NewRepository, Outcome, RefUpdate
from smartserver.errors import BranchExists, DivergedBranches, StaleEntry, StaleLease
from smartserver.plugins.breezy_append import is_linear, is_on_top, only_appends, options_are
from smartserver.plugins.breezy_branch import HpssBranch, Overwrite, Selector
from smartserver.plugins.breezy_changes import objection, outcomes, push_tags, tags_updates
from smartserver.plugins.breezy_progress import counted
from smartserver.plugins.breezy_remembered import stays
from smartserver.plugins.breezy_remote import KINDS, VCS, Remote
from smartserver.records.model import Announced, Key, RevisionId
from smartserver.vcs.base import Plan
from smartserver.vcs.brz import BrzRepository
from smartserver.vcs.brz_compat import GhostRevisionsHaveNoRevno, overwritten
from smartserver.verbs.fields import HERE
from smartserver.verbs.map_update import EntryChange, EntryOutcome, How, MapUpdateRequest, Verdict
from smartserver.verbs.rules import Create, Rule

TRIES = 3
"""Times that a push is planned on what is there, where that has become another meanwhile."""

EMPTY = "there is nothing to push: the branch has no revision yet; commit first"


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of a push."""

    result: BranchPushResult
    made: bool
    """Whether it made the branch."""


def push(
    source: Branch,
    target: HpssBranch,
    overwrite: Overwrite = False,
    stop_revision: RevisionId | None = None,
    tag_selector: Selector | None = None,
    *,
    revno: int | None = None,
    lossy: bool = False,
    hooks: bool = True,
    new: bool = False,
) -> Pushed:
    """Push; `new`: to where no branch is yet.

    Raises:
        AlreadyBranchError: there is one.
        DivergedBranches: the target has revisions that the source has not.
        BzrError: it could not be done.
    """
    if lossy:
        raise errors.LossyPushToSameVCS(source, target)
    what = overwritten(overwrite)
    with source.lock_read():
        tip = stop_revision or source.last_revision()
        if tip == NULL_REVISION:
            raise errors.CommandError(EMPTY)
        if revno is None:
            revno = _own_revno(source, tip)
        tags = dict(source.tags.get_tag_dict()) if source._push_should_merge_tags() else {}
        if tag_selector is not None:
            tags = {name: revision for name, revision in tags.items() if tag_selector(name)}
        tags = _sendable(tags)
        result = _send(source, target, tip, revno, tags, what, Create.MUST if new else Create.YES)
        result.master_branch = target
        result.local_branch = None
        if hooks:
            run_hooks(result)
        return Pushed(result, result.old_revid == NULL_REVISION)


def send_beside(source: Branch, target: HpssBranch, revision: RevisionId | None = None) -> None:
    """Have the server keep a revision, its tip where none is named, that no branch of it leads to yet.

    Raises:
        BzrError: it could not be done.
    """
    wanted = source.last_revision() if revision is None else revision
    if wanted == NULL_REVISION:
        return
    remote = target.remote
    with source.lock_read(), remote.words():
        (done,) = remote.push([stays(remote)], [], _Source(BrzRepository(source.repository), wanted)).refs
        if done.error is not None:
            raise done.error
        remote.learn_answer()


def run_hooks(result: BranchPushResult) -> None:
    """Tell whoever wants to know of pushes."""
    for hook in Branch.hooks["post_push"]:
        hook(result)


def _send(
    source: Branch,
    target: HpssBranch,
    tip: RevisionId,
    revno: int,
    tags: dict[str, RevisionId],
    overwrite: Collection[str],
    create: Create,
) -> BranchPushResult:
    remote = target.remote
    known = {value[0].id: value[0].attributes for value in remote.knowledge.refs().values()}
    how = How.SET if "tags" in overwrite else How.ADD
    local, forced = _Source(BrzRepository(source.repository)), "history" in overwrite
    is_sure = remote.is_known and not remote.is_assumed
    with remote.words():
        for _ in range(TRIES):
            if _violates(source, target, tip, forced=forced):
                if not is_sure:
                    remote.look_again()  # What is remembered refuses nothing.
                if _violates(source, target, tip, forced=forced):
                    raise errors.AppendRevisionsOnlyViolation(target.base)
            changes = tags_updates(_changes(tags, remote.remembered_tags(), how))
            update, options = _update(source, target, tip, revno, create, forced=forced)
            pushed = remote.push([update], [*options, *changes], local, NewRepository(VCS, KINDS))
            said = [*[each.error for each in pushed.refs], *[each.error for each in pushed.maps]]
            if not any(isinstance(error, (StaleLease, StaleEntry)) for error in said):
                break
            remote.learn_refusal()
            is_sure = True
        (done,) = pushed.refs
        old = done.old
        if isinstance(done.error, BranchExists) or (create is Create.MUST and done.outcome is Outcome.UNCHANGED):
            raise errors.AlreadyBranchError(target.base)  # One that is the same is there, too.
        if done.outcome is Outcome.REFUSED:
            if not isinstance(done.error, DivergedBranches):
                assert done.error is not None, "a refusal says why"
                raise done.error
            if not done.error.behind:
                raise errors.DivergedBranches(source, target)
            old = tip = done.error.tip
            remote.named = done.error.ref
            updated = {}
        else:
            updated = outcomes(pushed.maps[len(options) :])
        updated |= _push_rest({name: tag for name, tag in tags.items() if name not in updated}, remote, how)
    remote.is_now(source.repository)
    target._clear_cached_state()
    result = BranchPushResult()
    result.source_branch, result.target_branch = source, target
    result.old_revid = old or NULL_REVISION
    result.new_revid, result.new_revno = tip, remote.state().revno
    result.old_revno = _revno(source, result, known)
    result.tag_updates = {name: tags[name] for name, what in updated.items() if what.verdict is Verdict.DONE}
    result.tag_conflicts = {
        (name, tags[name], what.old) for name, what in updated.items() if what.verdict is Verdict.CONFLICT
    }
    return result


def _own_revno(source: Branch, tip: RevisionId) -> int:
    """The revno a revision has as a tip; one that was merged has another in the source's own line."""
    revno, last = source.last_revision_info()
    return int(source.repository.get_graph().find_distance_to_null(tip, [(last, revno)]))


def _violates(source: Branch, target: HpssBranch, tip: RevisionId, *, forced: bool) -> bool:
    """Whether the branch, as it was seen last, may not be moved there by its options, and would be."""
    there = target.remote.remembered_tip()
    if there is None or not only_appends(target.base, target.remote.remembered_config()):
        return False
    graph = source.repository.get_graph()
    return not is_on_top(graph, tip, there) and (forced or graph.is_ancestor(there, tip))


def _update(
    source: Branch, target: HpssBranch, tip: RevisionId, revno: int, create: Create, *, forced: bool
) -> tuple[RefUpdate, list[MapUpdateRequest]]:
    """How the tip is to move; and the condition that the options are those seen last, where it hangs on these."""
    options, there = target.remote.remembered_config(), target.remote.remembered_tip()
    update = RefUpdate(HERE, tip, Rule.FORCE if forced else Rule.FF, create, attributes=b"%d" % revno)
    graph = source.repository.get_graph()
    if only_appends(target.base, options):
        if there is not None and is_on_top(graph, tip, there):
            update = msgspec.structs.replace(update, rule=Rule.LEASE, expected=there)
    elif not forced and is_linear(graph, tip, there):
        return update, []
    return update, [options_are(options)]


def _sendable(tags: Mapping[str, RevisionId]) -> dict[str, RevisionId]:
    """Those of some tags that a server takes; of each other one it is said that it stays here."""
    objections = {name: why for name in tags if (why := objection(name))}
    for why in objections.values():
        trace.warning("hpss: not pushed: %s", why)
    return {name: revision for name, revision in tags.items() if name not in objections}


def _changes(tags: Mapping[str, RevisionId], there: Mapping[str, RevisionId], how: How) -> list[EntryChange]:
    """What is to be sent of tags where these are there."""
    return [EntryChange(name.encode(), tag, how) for name, tag in tags.items() if there.get(name) != tag]


def _push_rest(tags: Mapping[str, RevisionId], remote: Remote, how: How) -> dict[str, EntryOutcome]:
    """What becomes of tags that were not sent: what is there now is known, and may not be what was remembered."""
    there = remote.remembered_tags()
    conflicts = {
        name: EntryOutcome(Verdict.CONFLICT, there[name])
        for name, tag in tags.items()
        if how is How.ADD and there.get(name, tag) != tag
    }
    changes = _changes({name: tag for name, tag in tags.items() if name not in conflicts}, there, how)
    return conflicts | (push_tags(remote, changes) if changes else {})


def _revno(source: Branch, result: BranchPushResult, known: Mapping[RevisionId, bytes]) -> int:
    """The revno of the old tip: as remembered, else counted where its history is here."""
    if result.old_revid == NULL_REVISION:
        return 0
    if result.old_revid == result.new_revid:
        return result.new_revno
    if known.get(result.old_revid, b"").isdigit():
        return int(known[result.old_revid])
    graph = source.repository.get_graph()
    try:
        return graph.find_distance_to_null(result.old_revid, [(result.new_revid, result.new_revno)])
    except (errors.BzrError, GhostRevisionsHaveNoRevno):
        return 0


@dataclass(frozen=True, slots=True)
class _Source:
    """The local repository as a push reads it, its progress shown."""

    local: BrzRepository
    only: RevisionId | None = None
    """What is sent instead of the tips."""

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> _ShownPlan:
        from smartserver.vcs.brz_plan import plan

        return _ShownPlan(plan(self.local, tips if self.only is None else [self.only], haves))


@dataclass(frozen=True, slots=True)
class _ShownPlan:
    """A plan whose segments are counted as they are sent."""

    plan: Plan

    @property
    def graph(self) -> Sequence[Announced]:
        return self.plan.graph

    def segments(self) -> Iterator[bytes]:
        return counted("Sending revisions", self.plan.segments(), len(self.plan.graph))

    def without_bases(self, keys: Collection[Key]) -> _ShownPlan:
        return _ShownPlan(self.plan.without_bases(keys))
