"""`Remote`: a branch on a server. Breezy's own branch reads and writes it as three files: tip, tags and options."""

# Theory of operation
#
# `HpssBranch` is Breezy's own branch class, on three files in memory (`BranchFiles`) and on a repository whose files
# are a mirror's. The first look at a file asks the server, once in a command; a write of a file is one request. The
# parts:
#
# - `Place`: the connection, `seen` (the state of the branch, as the files say it), and each change as a request.
# - `BranchHistory`: the mirror, and the request that brings it up to date. `level` says how much was asked: `REFS` is
#   tip, tags and options, `HISTORY` is these and what the mirror lacks, in the same request.
# - `Checkouts`: the lightweight checkouts that are open, whose parents must be in the mirror, too.
#
# A command asks at most once: every object of a branch shares one `Remote` (`remotes.remote_at`), and an answer about
# one branch has the state of all branches of the repository (`_told`). A program that calls Breezy as a library runs
# no command: it asks at each outermost lock, and `forget` drops the state when the lock ends.
#
# The hard case is a command that changes the branch. Asking first would cost a round trip, so a branch that is locked
# for writing before it is read is *assumed* to be as in the last answer, which is in a cache (`Knowledge`). The rules:
#
# - Every change has conditions that fail if the branch is another: a lease on the tip, equal values of tags and
#   options. So a change that was decided on an old state is refused, and nothing is lost.
# - A refusal carries the state. `Outdated` is raised, and the command runs again from its beginning, on that state
#   (`RunningCommand.is_outdated` in the shim). It may: nothing was changed, or only options, which can be set twice.
# - An assumed state refuses nothing by itself. If a command fails on it, or ends without a request, the server is
#   asked (`confirm`), and the command runs again if the branch had changed.
# - Whatever else Breezy computes from the old state must be covered by a condition as well. A pull into a lightweight
#   checkout changes the tree by the difference to the old tip: `push` adds a condition that the tip is that one.
#
# A change is sent when it is made, so that its error comes where Breezy expects it. `gathering` is the exception: an
# uncommit moves the tip and removes tags, as one request.
#
# A move of the tip sends the mirror's revisions that the server lacks. If the mirror lacks the new tip, no revisions
# are sent: the tip is on the server (a program names one), or the server refuses it as missing. That happens if
# another process has removed the mirror since a commit was written into it. The user is told so (`NOWHERE`); the
# branch is as it was, the changes are still in the working tree, and the same command works.
#
# It is ugly that some rules name commands (`_may_assume`): Breezy has no sign for "will be changed" but the lock, and
# `commit` reads the tip before it locks.

from __future__ import annotations

import contextlib
import enum
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from breezy import errors

from smartserver.client.knowledge import Knowledge
from smartserver.client.places import served_by
from smartserver.client.updates import NewRepository, PushOutcome, RefUpdate
from smartserver.errors import BranchExists, DivergedBranches, MissingRevision, StaleEntry, StaleLease, shown
from smartserver.plugins import breezy_shim as hpss
from smartserver.plugins.breezy.branch_files import BranchFiles
from smartserver.plugins.breezy.change import (
    OPTIONS_FILE,
    TAGS_FILE,
    TIP_FILE,
    Lacking,
    Outdated,
    changed_tags,
    files_of,
    options_are,
    options_change,
    stays,
    tags_updates,
    tip_of,
)
from smartserver.plugins.breezy.history import BranchHistory
from smartserver.plugins.breezy.place import KINDS, VCS, BranchState, Place
from smartserver.plugins.breezy.running import current, given, is_ours, runs
from smartserver.plugins.breezy.transport import HpssTransport
from smartserver.records.model import HERE, RevisionId
from smartserver.vcs.bzr.kinds import CONFIG
from smartserver.vcs.bzr.repository import BrzRepository
from smartserver.verbs.declare import AnyVerb, Arguments
from smartserver.verbs.map_update import MapUpdateRequest
from smartserver.verbs.rules import Create, Rule

NOWHERE = (
    "the revision {} is neither on the server nor in the local mirror of {}, which may have been removed meanwhile: "
    "nothing was changed; run the command again"
)


class RequestLevel(enum.IntEnum):
    """The amount of state that was requested from the server."""

    REFS = enum.auto()
    """Tip, tags and options."""
    HISTORY = enum.auto()
    """Tip, tags, options, and the history that the mirror lacks."""


_gathered: list[Remote] | None = None
"""The branches whose changes are to be sent together; None if each change is sent when it is made."""


@contextmanager
def gathering() -> Iterator[None]:
    """Send all changes of a branch that are made in the block in one request, at its end."""
    global _gathered
    if _gathered is not None:
        yield
        return
    _gathered = []
    try:
        yield
    except BaseException:
        for remote in _gathered:
            remote.drop()
        raise
    finally:
        remotes, _gathered = _gathered, None
    for remote in remotes:
        remote.send()


class Remote(Place):
    """One branch on a server, with its files and its history."""

    def __init__(self, transport: HpssTransport, name: str = "", *, inside: bool = False) -> None:
        """`name`, `inside`: as in `Place`."""
        super().__init__(transport, name, inside=inside)
        self.files = BranchFiles(self)
        self.history = BranchHistory(self)
        self.level: RequestLevel | None = None
        """The highest level that this command has requested from the server; None if it has made no request."""
        self.branches: weakref.WeakSet[Any] = weakref.WeakSet()
        """Breezy's objects for this branch, which cache the files that they have read."""
        self.was_opened = False
        """True if Breezy was told that the branch exists, perhaps because it is remembered. A push may write to a
        branch that no longer exists."""
        self.writes = 0
        """The number of objects in `branches` that are locked for writing."""
        self.told: set[RevisionId] = set()
        """Ids of revisions, other than tips, that answers of the server contained."""
        self._loaded: dict[str, bytes] = {}
        """The content of the files for the state in `seen`."""
        self._written: dict[str, bytes] = {}
        """Changed files that were not sent yet, by name."""

    # -- the state

    def look(self) -> None:
        """Get the state of the repository, unless it is known: assume it, use an earlier answer, or send a request."""
        if self.seen is not None:
            return
        if self._may_assume() and self.assume():
            return
        if not self._is_told():
            self.ask_for(RequestLevel.REFS if self._is_copied_there() else RequestLevel.HISTORY)

    def look_to_read(self) -> None:
        """Get the state before the files are read, as `look` does.

        Raises:
            NotBranchError: a branch that was opened from its remembered state no longer exists.
        """
        is_known = self.seen is not None
        self.look()
        if self.was_opened and not (is_known or self.is_assumed or self.writes):
            self.there()

    def _may_assume(self) -> bool:
        if current() is None:
            return False  # A program gets the current state, at each of its locks.
        if given("dry_run"):
            return False  # No request would show that the state is outdated before something is printed.
        if runs("commit") or (runs("pull") and self.history.checkouts) or self._is_copied_there():
            return True
        return self.writes > 0 and not self.history.checkouts

    def _is_copied_there(self) -> bool:
        """Tell whether `brz branch` copies this branch within its repository, and receives no history."""
        to = given("to_location")
        if not runs("branch") or not is_ours(given("from_location")) or not is_ours(to) or given("revision"):
            return False
        made = HpssTransport(to).location
        above = self.path.rpartition("/")[0] if self.knowledge.at is None else self.knowledge.at
        return served_by(made) == served_by(self.location) and made.path.startswith(f"{above}/" if above else "")

    def remembered_inside(self) -> str | None:
        """Return the part of the path below a remembered branch; None if no remembered branch is on the path."""
        known = self.knowledge
        if known.vcs != VCS or known.named is None:
            return None
        refs, parts = known.refs(), known.named.split(b"/")
        for count in range(len(parts) - 1, 0, -1):
            if b"/".join(parts[:count]) in refs:
                return b"/".join(parts[count:]).decode("utf-8", "replace")
        return known.named.decode("utf-8", "replace") if HERE in refs and known.named != HERE else None

    def assume(self) -> bool:
        """Assume that the branch is as in the last answer. Return False if no branch is remembered."""
        command = current()
        if not self.is_remembered or command is None:
            return False
        self.learned()
        self.is_assumed = True
        command.assumed.append(self)
        return True

    def confirm(self) -> bool:
        """If the state is assumed, replace it by the current one. Return True if the branch has changed."""
        if not self.is_assumed:
            return False
        before = self.seen
        self.is_assumed = False
        known = self._told_here()
        if known is None:
            self.ask_for(RequestLevel.REFS)
        else:
            self.knowledge = self.repository.knowledge = known
            self.learned()
        return not _is_same(before, self.seen)

    def ask_for(self, level: RequestLevel, ids: Sequence[RevisionId] = ()) -> None:
        """Request the data of a level. `ids`: revisions whose history is requested instead of the branch's history.

        Raises:
            Outdated: the branch is not as assumed.
            MissingRevision: the server does not have one of `ids`.
        """
        before = self.seen if self.is_assumed else None
        with self.words():
            if level is RequestLevel.REFS:
                self.repository.learn_refs()
                self.learned()
            else:
                self.history.receive(ids)
        self.level = max(level, self.level or level)
        self._tell()
        if before is not None and not _is_same(before, self.seen):
            raise Outdated(self.url)

    def _is_told(self) -> bool:
        """Use the state from an answer in this command about another branch of the repository. Return False if there
        was no such answer."""
        known = self._told_here()
        if known is None:
            return False
        self.knowledge = self.repository.knowledge = known
        if known.ref(known.named or b"") is None:
            return False
        self.learned()
        self.level = RequestLevel.REFS
        return True

    def _tell(self) -> None:
        """Keep the last answer for the other branches of the repository, during this command."""
        command = current()
        if command is not None and self.knowledge.met:
            _told[served_by(self.location)] = command, self.knowledge

    def _told_here(self) -> Knowledge | None:
        """Return this command's last answer about this branch; None if it is missing or of another repository."""
        command, told = current(), _told.get(served_by(self.location))
        if command is None or told is None or told[0] is not command:
            return None
        known = told[1].beside(self.path)
        return known if known.at == told[1].at and known.vcs == VCS else None

    def told_by(self, other: Remote) -> None:
        """Use the state from an answer about another branch of the repository."""
        self.knowledge = self.repository.knowledge = other.knowledge.beside(self.path)
        self.learned()

    def learned(self) -> None:
        """Use the state in the last answer, and load the files with it."""
        super().learned()
        self.load()

    def load(self) -> None:
        """Write the state into the files, and make Breezy's objects read them again if they have changed."""
        if self.seen is None:
            return
        files = files_of(self.seen)
        if files == self._loaded:
            return
        self._loaded = files
        self.files.load(files)
        for branch in self.branches:
            branch.forget_files()

    def forget(self) -> None:
        """Drop the state, unless a change was not sent yet. It is called when the last lock of a program has ended."""
        if not self._written:
            self.seen, self.level, self.is_assumed = None, None, False

    def state(self) -> BranchState:
        """Return the state. It is requested first if necessary.

        Raises:
            NotBranchError: the branch does not exist.
        """
        self.look()
        return self.there()

    def tip(self) -> RevisionId | None:
        """Return the tip of the branch, or None if the branch does not exist."""
        with contextlib.suppress(errors.NotBranchError):
            self.look()
        return None if self.seen is None else self.seen.tip

    # -- the history

    def bring(self, revisions: Sequence[RevisionId], *, by_name: bool) -> bool:
        """Receive the history if it was not requested yet, else revisions by their ids. Return False if no request was
        sent.

        `by_name`: True if a user or a program named the revisions. Other revisions are requested only if an earlier
        answer of the server contained their ids.
        """
        refused, ghosts = self.history.refused, self.history.checkouts.ghosts
        wanted = [revision for revision in revisions if revision not in refused and revision not in ghosts]
        tip = None if self.seen is None else self.seen.tip
        if self.level is RequestLevel.REFS and (tip is None or self.history.mirror().has(tip)):
            self.level = RequestLevel.HISTORY
        if wanted and self.level is not RequestLevel.HISTORY:
            self.ask_for(RequestLevel.HISTORY)
            return True
        if not by_name:
            tips = {*self.knowledge.tips(), *self.told}
            wanted = [revision for revision in wanted if revision in tips]
        if not wanted:
            return False
        try:
            with self.words():
                self.history.receive(wanted)
        except errors.BzrError as error:
            if not isinstance(error.__cause__, MissingRevision):
                raise
            refused.update(wanted)
        return True

    def opened(self, tree: Any) -> None:
        """Add a lightweight checkout. Receive its parents if the mirror lacks them: `diff` reads them without the
        branch."""
        self.history.checkouts.add(tree)
        lacking = self.history.lacking_of_checkouts()
        if not lacking:
            return
        with contextlib.suppress(errors.ConnectionError, errors.NotBranchError):  # The command may not need them.
            if self.level is not RequestLevel.HISTORY:
                self.ask_for(RequestLevel.HISTORY)
                lacking = self.history.lacking_of_checkouts()
            self.bring(lacking, by_name=True)
        self.history.tell_gone(lacking)

    def is_named(self, revision: RevisionId) -> bool:
        """Tell whether the user, a tag or a program names a revision, which may then exist without a branch."""
        if current() is None or revision in (self.seen.tags.values() if self.seen is not None else ()):
            return True
        specs = [str(getattr(spec, "user_spec", "")) for spec in given("revision") or ()]
        return any(revision.decode("utf-8", "replace") in spec for spec in specs)

    # -- changes

    def write(self, name: str, content: bytes) -> None:
        """Change one of the branch's files. The change is sent at once, or at the end of `gathering`."""
        self.look()
        self._written[name] = content
        if _gathered is None:
            self.send()
            return
        self._loaded = {}
        self.files.load({name: content})
        if self not in _gathered:
            _gathered.append(self)

    def drop(self) -> None:
        """Drop the changes that were not sent."""
        self._written.clear()
        self.load()

    def send(self) -> None:
        """Send the changes, in one request.

        Raises:
            Outdated: the branch is not as assumed.
        """
        written, self._written = self._written, {}
        try:
            seen = self.there()
            updates, maps = self._requests(seen, written)
            if updates or maps:
                self._change(seen, updates, maps)
            elif self.is_assumed:
                self.is_assumed = False
                self.ask_for(RequestLevel.REFS)
                if not _is_same(seen, self.seen):
                    raise Outdated(self.url)
        finally:
            self.load()

    def _requests(self, seen: BranchState, written: dict[str, bytes]) -> tuple[list[RefUpdate], list[MapUpdateRequest]]:
        updates: list[RefUpdate] = []
        maps: list[MapUpdateRequest] = []
        if TIP_FILE in written:
            number, tip = tip_of(written[TIP_FILE])
            if tip != seen.tip:
                updates.append(RefUpdate(HERE, tip, Rule.LEASE, Create.NO, seen.tip or b"", b"%d" % number))
        if TAGS_FILE in written:
            entries = changed_tags(seen.tags, written[TAGS_FILE])
            if self.is_assumed and not updates and any(entry.value for entry in entries):
                updates.append(stays(seen))  # `brz tag` uses the tip of the assumed state.
            maps += tags_updates(entries, strict=True)
        options = written.get(OPTIONS_FILE, seen.config)
        if options != seen.config:
            maps.append(options_change(options, seen.config))
        elif updates and updates[0].tip != seen.tip:
            maps.append(options_are(seen.config))
        return updates, maps

    def _change(self, seen: BranchState, updates: list[RefUpdate], maps: list[MapUpdateRequest]) -> None:
        mirror = self.history.mirror()
        moved = [update.tip for update in updates if update.tip is not None and update.tip != seen.tip]
        is_here = bool(moved) and all(map(mirror.has, moved))  # Else the server has it, or refuses it.
        source = Lacking(BrzRepository(mirror.whole())) if is_here else None
        with self.words():
            error = self.push(updates, maps, source).error()
            if isinstance(error, (StaleLease, StaleEntry, DivergedBranches, BranchExists)):
                self.learn_refusal()
                self.level = RequestLevel.REFS
                raise Outdated(self.url) from error
            if isinstance(error, MissingRevision) and moved and source is None:
                raise errors.BzrError(NOWHERE.format(shown(error.revision), self.url)) from error
            if error is not None:
                raise error
            self.learned()

    def push(
        self, updates: Sequence[RefUpdate], maps: Sequence[MapUpdateRequest], *arguments: Any, **options: Any
    ) -> PushOutcome:
        """Send a change, as `Place` does. The command may still run again after a change of options alone, which can be
        set twice."""
        pushed = super().push(updates, maps, *arguments, **options)
        command = current()
        if pushed.error() is not None:
            self.is_assumed = False  # The refusal carries the state.
        elif command is not None and (updates or any(change.map != CONFIG for change in maps)):
            command.has_changed = True
        self._tell()
        return pushed

    def send_beside(self, repository: Any, revisions: Sequence[RevisionId]) -> None:
        """Send revisions that no branch of the server reaches yet."""
        if not revisions:
            return
        with repository.lock_read(), self.words():
            self.change([stays(self.state())], (), Lacking(BrzRepository(repository), revisions))

    def is_now(self) -> None:
        """Take the state from the answer to a push."""
        self.learned()
        self.level = self.level or RequestLevel.REFS

    def ask(self, verb: AnyVerb, arguments: Arguments) -> Any:
        """Make one call, as `Place.ask` does."""
        result = super().ask(verb, arguments)
        self.level = self.level or RequestLevel.REFS
        return result

    def delete(self) -> bool:
        """Delete the branch. Return False if it was missing."""
        with self.words():
            return bool(self.change([RefUpdate(HERE, None)]).refs[0].old)

    def is_beside(self, other: Remote) -> bool:
        """Tell whether both branches are on one server."""
        return self.server is other.server

    def is_in_repository_of(self, other: Remote) -> bool:
        """Tell whether both are branches of one repository, as far as that is known."""
        at = other.knowledge.at
        return self.is_beside(other) and at is not None and self.knowledge.met and self.knowledge.at == at

    def new_repository(self) -> NewRepository:
        """Return the form of the repository that a push creates if the repository is missing."""
        return NewRepository(VCS, KINDS)


def _is_same(one: BranchState | None, other: BranchState | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.tip, dict(one.tags), one.config) == (other.tip, dict(other.tags), other.config)


def remote_of(branch: Any) -> Remote | None:
    """Return the `Remote` of one of Breezy's branch objects; None for a local branch."""
    found = getattr(branch, "remote", None)
    return found if isinstance(found, Remote) else None


_told: dict[str, tuple[hpss.RunningCommand, Knowledge]] = {}
"""The last answer of each server, and the command that received it."""
