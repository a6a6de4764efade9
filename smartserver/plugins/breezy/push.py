"""A push of a local branch's tip, history and tags to a branch on a server, in one request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from breezy import errors, trace
from breezy.branch import Branch, BranchPushResult
from breezy.revision import NULL_REVISION

from smartserver.client.body import EmptyBody
from smartserver.client.push import Changes
from smartserver.client.updates import RefUpdate
from smartserver.errors import BranchExists, DivergedBranches, StaleEntry, StaleLease
from smartserver.plugins.breezy.change import (
    Lacking,
    is_linear,
    is_on_top,
    made,
    objection,
    options_are,
    options_become,
    outcomes,
    stays,
    tags_updates,
)
from smartserver.plugins.breezy.effects import only_appends
from smartserver.plugins.breezy.remote import Remote, remote_of
from smartserver.plugins.breezy.words import EMPTY, LOSSY, NotOnServer, check_has
from smartserver.records.model import HERE, RevisionId
from smartserver.spans import Part, spent
from smartserver.vcs.bzr.compat import GhostRevisionsHaveNoRevno, overwritten
from smartserver.vcs.bzr.kinds import TAGS
from smartserver.vcs.bzr.left_hand import number_in
from smartserver.vcs.bzr.repository import BrzRepository
from smartserver.verbs.map_update import EntryChange, EntryOutcome, How, MapUpdateRequest, Verdict
from smartserver.verbs.rules import Create, Rule

Selector = Callable[[str], bool]
Overwrite = bool | Sequence[str]

TRIES = 3
"""The most plans of a push, if the branch on the server changes meanwhile."""


def push(
    source: Branch,
    target: Any,
    overwrite: Overwrite = False,
    stop_revision: RevisionId | None = None,
    tag_selector: Selector | None = None,
    *,
    revno: int | None = None,
    lossy: bool = False,
    hooks: bool = True,
    new: bytes | None = None,
    commits: bool = False,
) -> BranchPushResult:
    """Push a branch. `new`: the options of a branch that must not exist yet. `commits`: True if the target must be at
    the source's tip.

    Raises:
        AlreadyBranchError: `new` was given, and the branch exists.
        DivergedBranches: the target has revisions that the source lacks.
        NoSuchRevision: `stop_revision` is not in the source.
    """
    if lossy:
        raise NotOnServer(LOSSY)
    what = overwritten(overwrite)
    with source.lock_read(), target.lock_read():
        tip = stop_revision or source.last_revision()
        if tip == NULL_REVISION:
            raise NotOnServer(EMPTY)
        if revno is None:
            revno = _own_revno(source, tip)
        tags = dict(source.tags.get_tag_dict()) if source._push_should_merge_tags() else {}
        if tag_selector is not None:
            tags = {name: revision for name, revision in tags.items() if tag_selector(name)}
        tags = _sendable(tags)
        how = How.SET if "tags" in what else How.ADD
        at = source.last_revision_info() if commits else None
        if at is not None and at[1] in (NULL_REVISION, tip):
            at = None  # The tip only has to move forward.
        result = _Push(source, target, tip, revno, tags, how, new, "history" in what, at).run()
        if hooks:
            run_hooks(result)
        return result


def run_hooks(result: BranchPushResult) -> None:
    """Call the hooks that observe pushes."""
    for hook in Branch.hooks["post_push"]:
        hook(result)


def _own_revno(source: Branch, tip: RevisionId) -> int:
    """Return the revno that a revision has as a tip. The revno of a merged revision in the source's own history is
    different."""
    revno, last = source.last_revision_info()
    check_has(source.repository, tip, source)
    return int(source.repository.get_graph().find_distance_to_null(tip, [(last, revno)]))


@dataclass(frozen=True, slots=True)
class _Push:
    """One push; `run` makes it."""

    source: Branch
    target: Any
    tip: RevisionId
    revno: int
    tags: Mapping[str, RevisionId]
    how: How
    """The rule for a tag that has another revision on the server."""
    new: bytes | None
    """The options of the branch, if the branch must not exist yet."""
    forced: bool
    """True to move the tip even if it would lose revisions."""
    at: tuple[int, RevisionId] | None = None
    """The number and the revision that the target's tip must have."""

    @spent(Part.LOCAL, "plan the push")
    def run(self) -> BranchPushResult:
        remote: Remote = self.target.remote
        if Branch.hooks["pre_change_branch_tip"] and self.new is None and self.target.last_revision() != self.tip:
            self.target._run_pre_change_branch_tip_hooks(self.revno, self.tip)
        revnos = {value[0].id: value[0].attributes for value in remote.knowledge.refs().values()}
        with remote.words():
            old, new, of_tags = self._move()
            of_tags |= self._send_rest({name: tag for name, tag in self.tags.items() if name not in of_tags})
        remote.is_now()
        self.target.repository.rest_on(self.source)
        result = BranchPushResult()
        result.source_branch, result.local_branch = self.source, None
        result.target_branch = result.master_branch = self.target
        result.old_revid, result.new_revid, result.new_revno = old or NULL_REVISION, new, remote.there().revno
        remote.told.add(result.old_revid)
        result.old_revno = _old_revno(self.source, result, revnos)
        if result.old_revid != result.new_revid:
            self.target._run_post_change_branch_tip_hooks(result.old_revno, result.old_revid)
        result.tag_updates = {name: self.tags[name] for name, what in of_tags.items() if what.verdict is Verdict.DONE}
        result.tag_conflicts = {
            (name, self.tags[name], what.old) for name, what in of_tags.items() if what.verdict is Verdict.CONFLICT
        }
        return result

    def _move(self) -> tuple[RevisionId, RevisionId, dict[str, EntryOutcome]]:
        """Move the tip and send the tags. Return the tip before and after, and the outcome of each tag that was
        sent."""
        remote: Remote = self.target.remote
        beside = remote_of(self.source)
        is_there = beside is not None and beside.is_in_repository_of(remote)
        source = EmptyBody() if is_there else Lacking(BrzRepository(self.source.repository))
        is_sure = remote.seen is not None and not remote.is_assumed
        for _ in range(TRIES):
            if self._violates() and not is_sure:
                remote.look_again()  # A remembered state must not refuse a push.
            new = remote.new_repository()
            pushed = remote.push(*self._planned(), source, new, self._planned, is_likely=self._comes_from_there())
            error = pushed.error()
            if not isinstance(error, (StaleLease, StaleEntry)):
                break
            remote.learn_refusal()
            if self.at is not None:
                raise errors.DivergedBranches(self.source, self.target)
            if remote.history.checkouts:
                raise self.target.outdated()
            is_sure = True
        if isinstance(error, DivergedBranches):
            if not error.behind:
                raise errors.DivergedBranches(self.source, self.target)
            remote.named = error.ref
            return error.tip, error.tip, {}
        if isinstance(error, BranchExists):
            raise errors.AlreadyBranchError(self.target.base)
        if error is not None:
            raise error
        return pushed.refs[0].old, self.tip, outcomes([done for done in pushed.maps if done.update.map == TAGS])

    def _comes_from_there(self) -> bool:
        """Tell whether the source was cloned from the target or a neighbouring branch, or was pushed there before."""
        folder = _folder(self.target.base)
        known = (self.source.get_parent(), self.source.get_push_location())
        return any(url is not None and _folder(url) == folder for url in known)

    def _planned(self) -> Changes:
        if self._violates():
            raise errors.AppendRevisionsOnlyViolation(self.target.base)
        update, options = self._update()
        tags = tags_updates(_changes(self.tags, self.target.remote.remembered().tags, self.how))
        if self.new is None:
            tip, same_options = self._conditions()
            return [*tip, update], [*(same_options or options), *tags]
        return made(self.tip, update.attributes), [*options_become(self.new), *tags]

    def _conditions(self) -> Changes:
        """Return the conditions on the target: that its tip is `at`, or that it is as assumed if Breezy changes a
        checkout's tree by the difference to the assumed state."""
        remote: Remote = self.target.remote
        if self.at is not None:
            revno, tip = self.at
            return [RefUpdate(HERE, tip, Rule.LEASE, Create.NO, tip, b"%d" % revno)], []
        if not (remote.is_assumed and remote.history.checkouts):
            return [], []
        state = remote.there()
        return [stays(state)], [options_are(state.config)]

    def _violates(self) -> bool:
        """Tell whether the push would break `append_revisions_only`, given the state of the last answer."""
        there = self.target.remote.remembered()
        if there.tip is None or not only_appends(self.target.base, there.config):
            return False
        graph = self.source.repository.get_graph()
        return not is_on_top(graph, self.tip, there.tip) and (self.forced or graph.is_ancestor(there.tip, self.tip))

    def _update(self) -> tuple[RefUpdate, list[MapUpdateRequest]]:
        """Return the update of the tip, with a condition on the options if the update depends on them."""
        there = self.target.remote.remembered()
        rule = Rule.FORCE if self.forced else Rule.FF
        update = RefUpdate(HERE, self.tip, rule, Create.YES, attributes=b"%d" % self.revno)
        graph = self.source.repository.get_graph()
        if only_appends(self.target.base, there.config):
            if there.tip is not None and is_on_top(graph, self.tip, there.tip):
                update = msgspec.structs.replace(update, rule=Rule.LEASE, expected=there.tip)
        elif not self.forced and is_linear(graph, self.tip, there.tip):
            return update, []
        return update, [options_are(there.config)]

    def _send_rest(self, tags: Mapping[str, RevisionId]) -> dict[str, EntryOutcome]:
        """Send those of `tags`, which have no outcome yet, that the server lacks or has at another revision by its last
        answer. Return their outcomes. With `How.ADD`, a tag at another revision is not sent but a conflict."""
        remote: Remote = self.target.remote
        there = remote.remembered().tags
        conflicts = {
            name: EntryOutcome(Verdict.CONFLICT, there[name])
            for name, tag in tags.items()
            if self.how is How.ADD and there.get(name, tag) != tag
        }
        changes = _changes({name: tag for name, tag in tags.items() if name not in conflicts}, there, self.how)
        return conflicts | (outcomes(remote.change([], tags_updates(changes)).maps) if changes else {})


def _folder(url: str) -> str:
    return url.rstrip("/").rpartition("/")[0]


def _sendable(tags: Mapping[str, RevisionId]) -> dict[str, RevisionId]:
    """Return the tags that a server accepts, and warn that all other tags stay local."""
    objections = {name: why for name in tags if (why := objection(name))}
    for why in objections.values():
        trace.warning("hpss: not pushed: %s", why)
    return {name: revision for name, revision in tags.items() if name not in objections}


def _changes(tags: Mapping[str, RevisionId], there: Mapping[str, RevisionId], how: How) -> list[EntryChange]:
    """Return the changes after which the server has the tags of the source."""
    return [EntryChange(name.encode(), tag, how) for name, tag in tags.items() if there.get(name) != tag]


def _old_revno(source: Branch, result: BranchPushResult, known: Mapping[RevisionId, bytes]) -> int:
    """Return the revno of the old tip: the remembered revno, else the one counted in the local history, else 0."""
    if result.old_revid == NULL_REVISION:
        return 0
    if result.old_revid == result.new_revid:
        return result.new_revno
    if number := number_in(known.get(result.old_revid, b"")):
        return number
    graph = source.repository.get_graph()
    try:
        return graph.find_distance_to_null(result.old_revid, [(result.new_revid, result.new_revno)])
    except (errors.BzrError, GhostRevisionsHaveNoRevno):
        return 0
