"""Sends git's refspecs as one request, and reports the outcome of each in git's words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from smartserver.client.plain import plain
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, Outcome, RefUpdate, UpdateOutcome
from smartserver.errors import (
    BranchExists,
    DivergedBranches,
    HeadBranch,
    MissingParents,
    MissingRevision,
    NotDone,
    StaleLease,
)
from smartserver.plugins.git.listing import Guess, conditions, guesses
from smartserver.plugins.git.options import Options
from smartserver.plugins.git.refspecs import Refspecs, matches
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
    from smartserver.client.places import Place

ATTEMPTS = 5
"""The most attempts of one push, each a `Push` of up to `PLANS` requests. A further attempt is made if a condition
failed, or if one update was refused and only conditions had made the request atomic."""

CHANGES = b"other users changed refs of that name during each attempt; try again"
NOT_ATOMIC = b"atomic push failed"
FUNNY = b"funny refname"
NOT_A_COMMIT = b"failed to update ref: a branch must point at a commit"


class PushCommand(msgspec.Struct, frozen=True):
    """One of git's `push` commands."""

    source: bytes
    """A local ref or expression that denotes the object to push; empty to delete the remote ref."""
    listed: bytes
    """The remote ref in git's command, which the answer to git must repeat."""
    ref: bytes
    force: bool = False


class GitPush:
    """A push of git's commands to one repository."""

    def __init__(self, location: Place, repository: RemoteRepository, local: GitRepository, options: Options) -> None:
        self._location = location
        self._repository = repository
        self._local = local
        self._options = options

    def run(self, batch: Sequence[bytes], refspecs: Refspecs | None, listed: Collection[bytes]) -> list[bytes]:
        """Push the commands in `batch`. Return the lines that report the outcome of each command to git.

        `refspecs`: the refspecs if git chose the target refs from the cached refs `listed`; else None. Each request
        then requires, for the refs that decide a target, that they are as cached. If one is not, the server changes
        nothing and its answer has the current refs. The targets are chosen again from these, in at most `ATTEMPTS`
        attempts.

        Raises:
            CodedError, MediumError, ProtocolError: as in `RemoteRepository.push`.
        """
        left: Sequence[PushCommand] = [_command(line) for line in batch]
        guessed = guesses(refspecs, listed, {push.ref for push in left}) if refspecs is not None else ()
        if refspecs is None or not guessed:
            return self._attempt(left)[0]
        knowledge, leases = self._repository.knowledge, self._options.leases
        lines: list[bytes] = []
        found = guessed
        for _ in range(ATTEMPTS):
            # Deletions are left out, so that a missing ref is reported as git itself does it.
            leased = {push.ref for push in left if push.source and not push.force and leases.get(push.listed)}
            said, left = self._attempt(left, conditions(refspecs, found, knowledge.refs(), leased))
            lines += said
            if not left:
                return lines
            refs = knowledge.refs()
            targets = {guess.ref: refspecs.target(guess.source, guess.short, refs) for guess in guessed}
            found = [
                replace(guess, ref=targets[guess.ref]) for guess in guessed if guess.ref in {one.listed for one in left}
            ]
            undecided = next((guess for guess in found if not guess.ref), None)
            if undecided is not None:
                return lines + _errors(left, _undecided(undecided, refs))
            left = [replace(push, ref=targets.get(push.listed, push.ref)) for push in left]
        return lines + _errors(left, CHANGES)

    def _attempt(
        self, commands: Sequence[PushCommand], asked: Sequence[RefUpdate] = ()
    ) -> tuple[list[bytes], Sequence[PushCommand]]:
        """Return the lines of an attempt, and the commands that had no effect and must be sent again: either the
        conditions in `asked` do not hold, or another update was refused and only the conditions had made the request
        atomic."""
        atomic = self._options.atomic
        with span(Part.LOCAL, "look up refs"):
            updates = [self._update(command) for command in commands]
            names = {command.ref: command.listed for command in commands if command.ref != command.listed}
            refused = {update.ref: why for update in updates if (why := objection(self._local, update))}
        lines = [b"error " + names.get(ref, ref) + b" " + why for ref, why in refused.items()]
        commands = [command for command in commands if command.ref not in refused]
        updates = [update for update in updates if update.ref not in refused]
        if refused and atomic:
            return lines + _errors(commands, NOT_ATOMIC), ()
        if not updates:
            return lines, ()
        outcomes = self._send([*asked, *updates], atomic=atomic or bool(asked))
        of_asked, done = outcomes[: len(asked)], outcomes[len(asked) :]
        if any(isinstance(outcome.error, StaleLease) for outcome in of_asked):
            return lines, commands
        left: Sequence[PushCommand] = ()
        if asked and not atomic and any(_is_refused(outcome) for outcome in done):
            left = [command for command, outcome in zip(commands, done, strict=True) if not _is_refused(outcome)]
            done = [outcome for outcome in done if _is_refused(outcome)]
        with span(Part.LOCAL, "tell git what moved"):
            return lines + [line for outcome in done for line in self._report(outcome, names)], left

    def _send(self, updates: Sequence[RefUpdate], *, atomic: bool) -> Sequence[UpdateOutcome]:
        local = self._local
        with span(Part.LOCAL, "look up refs"):
            new = NewRepository(local.vcs, local.kinds, {HEAD: new_head(local, updates)})
        try:
            request = PushRequest(
                updates,
                LocalSource(local),
                new,
                atomic=atomic,
                check_only=self._options.dry_run,
                options=self._options.push_options,
            )
            return self._repository.push(request).refs
        except VcsError as error:
            raise CannotGoOn(str(error)) from error
        except (MissingParents, MissingRevision) as error:
            if not local.is_shallow:
                raise
            raise CannotGoOn(_cut_off(error)) from error

    def _update(self, command: PushCommand) -> RefUpdate:
        local, ref = self._local, command.ref
        lease = None if command.force else self._options.leases.get(command.listed)
        if not command.source:
            return RefUpdate(ref, None, expected=lease)
        found = local.find(command.source)
        if found is None:
            raise CannotGoOn(f"{command.source.decode('utf-8', 'replace')} is not an object of this repository")
        if lease is not None:
            rule = Rule.LEASE
        elif command.force:
            rule = Rule.FORCE
        else:
            rule = Rule.NEW if ref.startswith(TAGS) else Rule.FF
        return RefUpdate(ref, found.key, rule, expected=lease, attributes=peeled(local, found))

    def _report(self, updated: UpdateOutcome, names: Mapping[bytes, bytes]) -> list[bytes]:
        update, ref, local = updated.update, updated.update.ref, self._local
        listed = names.get(ref, ref)
        at = [tip.id for tip in self._repository.knowledge.ref(ref) or ()]
        # If another ref stopped an atomic push, this ref may have been up to date.
        idle = updated.outcome is Outcome.UNCHANGED or (isinstance(updated.error, NotDone) and at == [update.tip])
        if idle and update.tip is not None:
            return [b"error " + listed + b" up to date"]
        if updated.outcome is Outcome.REFUSED:
            return [b"error " + listed + b" " + _why(self._location, local, updated)]
        lines = [b"ok " + listed]
        if ref != listed:
            lines.append(b"option refname " + ref)
        if updated.old and update.tip is not None:
            lines += [b"option old-oid " + updated.old.hex().encode(), b"option new-oid " + update.tip.hex().encode()]
            may_force = update.rule in (Rule.FORCE, Rule.LEASE)
            if may_force and (ref.startswith(TAGS) or not local.is_ancestor(updated.old, update.tip)):
                lines.append(b"option forced-update")
        return lines


def _command(line: bytes) -> PushCommand:
    source, _, ref = line.lstrip(b"+").rpartition(b":")
    return PushCommand(source, ref, ref, line.startswith(b"+"))


def _errors(commands: Sequence[PushCommand], why: bytes) -> list[bytes]:
    return [b"error " + command.listed + b" " + why for command in commands]


def _is_refused(updated: UpdateOutcome) -> bool:
    return updated.outcome is Outcome.REFUSED and not isinstance(updated.error, NotDone)


def _undecided(guess: Guess, refs: Collection[bytes]) -> bytes:
    """Return the reason why a short target matches no ref or several, in git's words."""
    if matches(guess.short, refs):
        return b"dst refspec " + guess.short + b" matches more than one"
    if not guess.source:
        return b"unable to delete '" + guess.short + b"': remote ref does not exist"
    return guess.short + b" names no remote ref, and its source is no branch or tag: push to refs/heads/..."


def peeled(local: GitRepository, found: GitObject) -> bytes:
    """Return the id of the object that an annotated tag peels to, for the `^{}` lines of `git ls-remote`; else
    empty."""
    target = local.find(found.key.hex().encode() + b"^{}") if found.type == TAG else None
    return target.key if target is not None else b""


def objection(local: GitRepository, update: RefUpdate) -> bytes:
    """Return the reason why an update must not be sent; empty if it is valid.

    Like git's own server, refuse a branch that does not point at a commit. Also refuse to create or move a ref that is
    not in a folder of `refs/`; such a ref may only be deleted. A name that is too long for our server is also refused.
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
    """Return the branch that HEAD names in a repository created by this push."""
    pushed = [update.ref for update in updates if update.tip and update.ref.startswith(HEADS)]
    head = local.head() or HEADS + b"main"
    return head if head in pushed or not pushed else pushed[0]


def _why(location: Place, local: GitRepository, updated: UpdateOutcome) -> bytes:
    """Return the reason in words that git recognizes, so that git adds its own advice."""
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
            return _on_a_line(f"deletion of the current branch prohibited: first run `{set_head}`")
        case NotDone():
            return NOT_ATOMIC
        case None:
            return b"no reason given"
        case MissingParents() | MissingRevision() if local.is_shallow:
            return _on_a_line(_cut_off(error))
        case _:
            return _on_a_line(in_words(error, location))


def _cut_off(error: MissingParents | MissingRevision) -> str:
    """Return the reason for the refusal of a push from a shallow repository: the remote lacks history that is cut off
    here."""
    why = str(error).partition(";")[0]  # Pulling, which the error recommends, does not help.
    return (
        f"cannot push from a shallow repository: the remote lacks history that is cut off here: {why} "
        "(run `git fetch --unshallow` from where it was cloned)"
    )


def _on_a_line(text: str) -> bytes:
    """Return a reason on one line, because names in the reason must not end a line of git's protocol."""
    return " ".join(plain(text).split()).encode()


class LocalSource(msgspec.Struct, frozen=True):
    """The local repository, as the source of a push."""

    local: GitRepository

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Plan:
        """Return the plan for the revisions that the remote lacks."""
        from smartserver.vcs.git.read import plan

        return plan(self.local, tips, haves)
