"""A push: git's refspecs as one request, and what became of each, in the words git knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from smartserver.client.plain import plain
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, Outcome, RefUpdate, UpdateOutcome
from smartserver.errors import BranchExists, DivergedBranches, HeadBranch, NotDone, StaleLease
from smartserver.plugins.git.options import Options
from smartserver.plugins.git.terminal import CannotGoOn
from smartserver.plugins.git.words import in_words
from smartserver.records.model import Plan, RevisionId
from smartserver.spans import Part, span
from smartserver.vcs.base import VcsError
from smartserver.vcs.git.names import HEAD, HEADS, TAGS
from smartserver.vcs.git.objects import COMMIT, TAG, GitObject
from smartserver.vcs.git.repository import GitRepository
from smartserver.verbs.fields import MAX_NAME
from smartserver.verbs.rules import Rule

if TYPE_CHECKING:
    from smartserver.client.knowledge import Knowledge
    from smartserver.client.places import Place

NOT_ATOMIC = b"atomic push failed"
FUNNY = b"funny refname"
NOT_A_COMMIT = b"failed to update ref: a branch must point at a commit"


def push(
    location: Place,
    repository: RemoteRepository,
    local: GitRepository,
    options: Options,
    refspecs: Sequence[bytes],
) -> list[bytes]:
    """Push; the lines that say what became of each refspec.

    Raises:
        CannotGoOn: a source is no object, or something that must be sent is missing here.
        CodedError, MediumError, ProtocolError: as `RemoteRepository.push`.
    """
    with span(Part.LOCAL, "look up refs"):
        updates = [_update(local, options, refspec) for refspec in refspecs]
        refused = {update.ref: why for update in updates if (why := _objection(local, update))}
    lines = [b"error " + ref + b" " + why for ref, why in refused.items()]
    updates = [update for update in updates if update.ref not in refused]
    if refused and options.atomic:
        return lines + [b"error " + update.ref + b" " + NOT_ATOMIC for update in updates]
    if not updates:
        return lines
    with span(Part.LOCAL, "look up refs"):
        new = NewRepository(local.vcs, local.kinds, {HEAD: new_head(local, updates)})
    try:
        request = PushRequest(updates, LocalSource(local), new, atomic=options.atomic, check_only=options.dry_run)
        done = repository.push(request).refs
    except VcsError as wrong:
        raise CannotGoOn(str(wrong)) from wrong
    with span(Part.LOCAL, "tell git what moved"):
        return lines + [line for updated in done for line in _report(location, repository.knowledge, local, updated)]


def _update(local: GitRepository, options: Options, refspec: bytes) -> RefUpdate:
    force = refspec.startswith(b"+")
    source, _, ref = refspec.lstrip(b"+").rpartition(b":")
    lease = None if force else options.leases.get(ref)
    if not source:
        return RefUpdate(ref, None, expected=lease)
    found = local.find(source)
    if found is None:
        raise CannotGoOn(f"{source.decode('utf-8', 'replace')} is not an object of this repository")
    if lease is not None:
        rule = Rule.LEASE
    elif force:
        rule = Rule.FORCE
    else:
        rule = Rule.NEW if ref.startswith(TAGS) else Rule.FF
    return RefUpdate(ref, found.key, rule, expected=lease, attributes=peeled(local, found))


def peeled(local: GitRepository, found: GitObject) -> bytes:
    """The id of the object that an annotated tag peels to, for the `^{}` lines of `git ls-remote`; else empty."""
    target = local.find(found.key.hex().encode() + b"^{}") if found.type == TAG else None
    return target.key if target is not None else b""


def _objection(local: GitRepository, update: RefUpdate) -> bytes:
    """Why an update cannot be sent; empty where nothing is wrong.

    Git's own server refuses a branch that points at something else than a commit, and to make or move a ref that is not
    in a folder of `refs/` (it may be deleted); ours a name it has no room for.
    """
    if len(update.ref) > MAX_NAME:
        return b"its name has %d bytes, expected no more than %d" % (len(update.ref), MAX_NAME)
    if update.tip is None:
        return b""
    if not update.ref.startswith(b"refs/") or update.ref.count(b"/") < 2:
        return FUNNY
    if not update.ref.startswith(HEADS):
        return b""
    found = local.find(update.tip.hex().encode())
    return b"" if found is not None and found.type == COMMIT else NOT_A_COMMIT


def new_head(local: GitRepository, updates: Sequence[RefUpdate]) -> bytes:
    """What HEAD of a repository made by this push names."""
    pushed = [update.ref for update in updates if update.tip and update.ref.startswith(HEADS)]
    head = local.head() or HEADS + b"main"
    return head if head in pushed or not pushed else pushed[0]


def _report(location: Place, knowledge: Knowledge, local: GitRepository, updated: UpdateOutcome) -> list[bytes]:
    update, ref = updated.update, updated.update.ref
    at = [tip.id for tip in knowledge.ref(ref) or ()]
    # An atomic push that another ref stopped had nothing to do here.
    idle = updated.outcome is Outcome.UNCHANGED or (isinstance(updated.error, NotDone) and at == [update.tip])
    if idle and update.tip is not None:
        return [b"error " + ref + b" up to date"]
    if updated.outcome is Outcome.REFUSED:
        return [b"error " + ref + b" " + _why(location, local, updated)]
    lines = [b"ok " + ref]
    if updated.old and update.tip is not None:
        lines += [b"option old-oid " + updated.old.hex().encode(), b"option new-oid " + update.tip.hex().encode()]
        may_force = update.rule in (Rule.FORCE, Rule.LEASE)
        if may_force and (ref.startswith(TAGS) or not local.is_ancestor(updated.old, update.tip)):
            lines.append(b"option forced-update")
    return lines


def _why(location: Place, local: GitRepository, updated: UpdateOutcome) -> bytes:
    """The reason in the words git knows, so that it gives its own advice."""
    error = updated.error
    match error:
        case DivergedBranches():
            if local.find(error.tip.hex().encode()) is None:
                return b"fetch first"
            tips = (error.tip, updated.update.tip or b"")
            have_history = all(local.find(tip.hex().encode() + b"^{commit}") for tip in tips)
            return b"non-fast forward" if have_history else b"needs force"
        case BranchExists():
            return b"already exists"
        case StaleLease():
            return b"stale info"
        case HeadBranch():
            set_head = f"smartserver config {location.key} head ANOTHER-BRANCH"
            return f"deletion of the current branch prohibited: first run `{set_head}`".encode()
        case NotDone():
            return NOT_ATOMIC
        case None:
            return b"no reason given"
        case _:
            return " ".join(plain(in_words(error, location)).split()).encode()


class LocalSource(msgspec.Struct, frozen=True):
    """The local repository as a push reads it."""

    local: GitRepository

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Plan:
        """What the remote lacks."""
        from smartserver.vcs.git.read import plan

        return plan(self.local, tips, haves)
