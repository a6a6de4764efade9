"""`Remote`: a branch on a server, to Breezy three files: tip, tags and options.

The first look at a file asks the server, once in a command, what the branch is and what is new of its history. A write
of a file is a request, which the server refuses where the branch is not what it was taken for. A branch that a command
locks for writing before it looks at it is taken for what is remembered: the request that changes it is then the first.
"""

from __future__ import annotations

import contextlib
import enum
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any

from breezy import errors, trace
from breezy.transport import NoSuchFile
from breezy.transport.memory import MemoryTransport

from smartserver.client.knowledge import Knowledge
from smartserver.client.places import served_by
from smartserver.client.updates import NewRepository, PushOutcome, RefUpdate
from smartserver.errors import BranchExists, DivergedBranches, MissingRevision, StaleEntry, StaleLease, shown
from smartserver.plugins import breezy_shim as hpss
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
from smartserver.plugins.breezy.mirror import LARGE, Coming, Damaged, Mirror, damage, mirror_of
from smartserver.plugins.breezy.place import KINDS, VCS, Place, State
from smartserver.plugins.breezy.running import current, given, is_ours, runs
from smartserver.plugins.breezy.transport import HpssTransport
from smartserver.records.model import HERE, RevisionId
from smartserver.vcs.base import VcsError
from smartserver.vcs.bzr.kinds import CONFIG, SIGNATURES
from smartserver.vcs.bzr.repository import BrzRepository
from smartserver.verbs.declare import AnyVerb, Arguments
from smartserver.verbs.map_update import MapUpdateRequest
from smartserver.verbs.repository_pull import MAX_HAVES
from smartserver.verbs.repository_stats import StatsResult
from smartserver.verbs.rules import Create, Rule

FILES = (TIP_FILE, TAGS_FILE, OPTIONS_FILE)

TRIES = 3
"""Times that history is asked for, where the mirror turns out to be damaged."""

MAX_BRANCHES = 4
"""Local branches whose tips are named to a server, the newest first."""

GONE = (
    "the revision {} that this tree rests on is not in the repository of {} any more, which was made anew or put back "
    "to what it was: check out what is there to another place"
)

READ_WITHOUT = "`smartserver cat`, `ls`, `log` and `export` of a URL read without it"


UNREAD = (errors.NoSuchRevision, NoSuchFile)
"""What Breezy raises where a file of a repository is not what it wrote, besides the errors of its own stores."""


class Level(enum.IntEnum):
    """How much is asked of a branch."""

    REFS = enum.auto()
    """What it is: tip, tags and options."""
    HISTORY = enum.auto()
    """And what its mirror lacks of its history."""


class BranchFiles(MemoryTransport):  # type: ignore[misc]  # Breezy is not typed.
    """The files of a branch: the first look asks for them, and a write is sent."""

    def __init__(self, remote: Remote) -> None:
        super().__init__()
        self._remote = weakref.proxy(remote)

    def get(self, relpath: str) -> Any:
        """A file as it was read."""
        if relpath in FILES:
            self._remote.look()
        return super().get(relpath)

    def has(self, relpath: str) -> bool:
        """Whether there is a file."""
        if relpath in FILES:
            self._remote.look()
        return bool(super().has(relpath))

    def put_file(self, relpath: str, f: Any, mode: object = None) -> int:
        """Change the branch.

        Raises:
            Outdated: it is another by now.
            TransportNotPossible: a server has no such file.
        """
        if relpath not in FILES:
            raise errors.TransportNotPossible(f"there are no files on an hpss:// server: {relpath}")
        content: bytes = f.read()
        self._remote.write(relpath, content)
        return len(content)

    def load(self, files: dict[str, bytes]) -> None:
        """Have this content, whatever was there."""
        for name, content in files.items():
            if content or name != OPTIONS_FILE:
                super().put_file(name, BytesIO(content))
            elif super().has(name):
                self.delete(name)

    def clone(self, offset: str | None = None) -> MemoryTransport:
        """A place below, where no files are."""
        return MemoryTransport()

    def abspath(self, relpath: str) -> str:
        """The URL that a file of the branch would have."""
        return f"{self._remote.url}{relpath}"

    def external_url(self) -> str:
        """The URL of the branch."""
        return str(self._remote.url)


_gathered: list[Remote] | None = None
"""The branches with changes that are sent together, while there is a reason for that."""


@contextmanager
def gathering() -> Iterator[None]:
    """Around what changes a branch more than once: the changes of each are sent in one request, at the end."""
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
    """One branch on a server."""

    def __init__(self, transport: HpssTransport, name: str = "", *, inside: bool = False) -> None:
        """`name`, `inside`: as of `Place`."""
        super().__init__(transport, name, inside=inside)
        self.files = BranchFiles(self)
        self.level: Level | None = None
        """How much of it was asked."""
        self.branches: weakref.WeakSet[Any] = weakref.WeakSet()
        """Breezy's objects of it, which keep what they have read."""
        self.trees: weakref.WeakSet[Any] = weakref.WeakSet()
        """Its lightweight checkouts that are open."""
        self._rests_on: dict[RevisionId, None] = {}
        """What those rest on."""
        self._bases: set[RevisionId] = set()
        """Of that, the first parents."""
        self._ghosts: set[RevisionId] = set()
        """What those rest on and is nowhere."""
        self.writes = 0
        """How many of the objects are locked for writing."""
        self.told: set[RevisionId] = set()
        """Revisions that the server has said are there, besides tips."""
        self.absent: set[RevisionId] = set()
        """Ghosts of what is here."""
        self.refused: set[RevisionId] = set()
        """Revisions that were asked for by id and are not there."""
        self.stats: StatsResult | None = None
        """What the repository consists of, where that was asked."""
        self._mirror: Mirror | None = None
        self.gone = ""
        """That what a tree rests on is nowhere, as a user is told."""
        self._loaded: dict[str, bytes] = {}
        """The content of the files as the branch is."""
        self._written: dict[str, bytes] = {}
        """Files that were changed and are not sent yet."""

    # -- the mirror

    def mirror(self, *, makes: bool = True) -> Mirror:
        """Where its history is kept; `makes`: on the disk, though nothing of it is there yet."""
        if self._mirror is None:
            self._mirror = mirror_of(self, makes=makes)
        return self._mirror

    def _answered(self) -> Mirror | None:
        """Turn to the mirror of the repository that has answered; the one of the repository there was before."""
        before = self._mirror
        if before is None:
            self._mirror = mirror_of(self)
        elif before.is_shared and (found := mirror_of(self)) is not before:
            self._mirror = found
            return before
        return None

    # -- what it is

    def look(self) -> None:
        """Know what it is: as remembered where it is to be changed, as an answer in this command says, else asked."""
        if self.seen is not None:
            return
        if self._may_assume() and self.assume():
            return
        if not self._is_told():
            self.ask_for(Level.REFS if self._is_copied_there() else Level.HISTORY)

    def _may_assume(self) -> bool:
        if current() is None:
            return False  # A program is told what is there, at each of its locks.
        if runs("commit") or (runs("pull") and self.trees) or self._is_copied_there():
            return True
        return self.writes > 0 and not self.trees

    def _is_copied_there(self) -> bool:
        """Whether a branch is made of it in the same repository, as far as that is known: its history stays there."""
        to = given("to_location")
        if not runs("branch") or not is_ours(given("from_location")) or not is_ours(to) or given("revision"):
            return False
        made = HpssTransport(to).location
        above = self.path.rpartition("/")[0] if self.knowledge.at is None else self.knowledge.at
        return served_by(made) == served_by(self.location) and made.path.startswith(f"{above}/" if above else "")

    def remembered_inside(self) -> str | None:
        """The part of the path below the branch, where one is remembered that the path leads into."""
        known = self.knowledge
        if known.vcs != VCS or known.named is None:
            return None
        refs, parts = known.refs(), known.named.split(b"/")
        for count in range(len(parts) - 1, 0, -1):
            if b"/".join(parts[:count]) in refs:
                return b"/".join(parts[count:]).decode("utf-8", "replace")
        return known.named.decode("utf-8", "replace") if HERE in refs and known.named != HERE else None

    def assume(self) -> bool:
        """Take it for what is remembered; whether it is."""
        command = current()
        if not self.is_remembered or command is None:
            return False
        self.learned()
        self.is_assumed = True
        command.assumed.append(self)
        return True

    def confirm(self) -> bool:
        """Ask, if it was taken for what is remembered; whether it was another."""
        if not self.is_assumed:
            return False
        before = self.seen
        self.is_assumed = False
        known = self._told_here()
        if known is None:
            self.ask_for(Level.REFS)
        else:
            self.knowledge = self.repository.knowledge = known
            self.learned()
        return not _is_same(before, self.seen)

    def ask_for(self, level: Level, ids: Sequence[RevisionId] = ()) -> None:
        """Ask the server, in one request. `ids`: revisions that are wanted though the branch may not reach them.

        Raises:
            Outdated: it is not what it was taken for.
            MissingRevision: one of `ids` is not there.
        """
        before = self.seen if self.is_assumed else None
        with self.words():
            if level is Level.REFS:
                self.repository.learn_refs()
                self.learned()
            else:
                self._ask_history(ids)
        self.level = max(level, self.level or level)
        self._tell()
        if before is not None and not _is_same(before, self.seen):
            raise Outdated(self.url)

    def _ask_history(self, ids: Sequence[RevisionId]) -> None:
        for left in reversed(range(TRIES)):
            haves: list[RevisionId] = []
            absent: list[RevisionId] = []
            if self.knowledge.met:
                haves, absent = self.mirror().haves(self.knowledge.tips())
            is_first = not haves
            local = {} if self.trees or ids else self._local_haves(haves)
            for repository in dict.fromkeys(local.values()):
                absent += BrzRepository(repository).absent([each for each in local if local[each] is repository])
            self.absent.update(absent)
            asked = [*haves, *local][:MAX_HAVES]
            also = ids or [each for each in self.lacking_of_trees() if each not in self.refused]
            try:
                pulled = self.repository.pull(
                    asked, [] if ids else [HERE], also, absent=absent, bulk=True, stats=runs("info")
                )
            except MissingRevision as missing:
                if ids:
                    raise
                self.refused.add(missing.revision)
                self._say_gone([missing.revision])
                continue
            self.stats = pulled.stats
            self.learned()
            before, mirror = self._answered(), self.mirror()
            coming = Coming(pulled)
            if is_first:
                self._announce(coming)
            coming.receive()
            old = None if before is None else before.open()
            local |= {} if old is None else dict.fromkeys(haves, old)  # It was created again, with some old revisions.
            common = set(pulled.common(asked)) & local.keys()
            beside = list(dict.fromkeys([local[each] for each in common]))
            heads = [(each, [have for have in asked if have in common and local[have] is each]) for each in beside]
            is_copied = [(coming.announced or each is old) and mirror.adopt(each, its) for each, its in heads]
            beside = [each for each, done in zip(beside, is_copied, strict=True) if not done]
            try:
                mirror.receive(coming, beside=beside, is_first=is_first)
            except Damaged:
                if left:
                    continue
                raise errors.BzrError(f"the history of {self.url} cannot be kept here") from None
            if beside and not coming.announced:
                for repository in beside:
                    mirror.rest_on(repository)
            if before is not None:
                before.rest_on(mirror.attach(mirror.open()))
            signatures = self.knowledge.map(SIGNATURES)
            if signatures:
                mirror.add_signatures(signatures)
            return

    def _local_haves(self, here: Sequence[RevisionId]) -> dict[RevisionId, Any]:
        """Revisions of the local branches that were opened, each with its repository: they need not come."""
        found: dict[RevisionId, Any] = {}
        for reference in [*reversed(hpss.opened)]:  # One that is dropped meanwhile leaves the list.
            branch = reference()
            if branch is None or getattr(branch, "remote", None) is not None or len(found) >= MAX_HAVES:
                continue
            try:
                BrzRepository(branch.repository).check_format()
                tip = branch.last_revision()
                if tip in here:
                    continue
                # Another object: Breezy locks its own for writing.
                repository = branch.controldir.open_branch(branch.name).repository
                own = BrzRepository(repository).complete_haves(self.knowledge.tips(), MAX_HAVES // 2, [tip])
            except (errors.BzrError, OSError, VcsError):
                continue
            for each in own:
                if each not in here:
                    found.setdefault(each, repository)
            if len(set(found.values())) >= MAX_BRANCHES:
                break
        return found

    def _announce(self, coming: Coming) -> None:
        """Say how much comes, where that is much."""
        from breezy.config import GlobalStack

        limit: int | None = GlobalStack().get(LARGE.name)
        if limit is not None and coming.size > limit and not trace.is_quiet():
            trace.note(
                "hpss: receiving the history of %s, %.1f MB, once; %s", self.url, coming.size / 1e6, READ_WITHOUT
            )

    def _is_told(self) -> bool:
        """Whether an answer in this command, about another branch of the repository, says what this one is."""
        known = self._told_here()
        if known is None:
            return False
        self.knowledge = self.repository.knowledge = known
        if known.ref(known.named or b"") is None:
            return False
        self.learned()
        self.level = Level.REFS
        return True

    def learned(self) -> None:
        """As of `Place`, and have the files say so."""
        super().learned()
        self.load()

    def _tell(self) -> None:
        """Let the other branches of the repository learn from the last answer about this one, in this command."""
        command = current()
        if command is not None and self.knowledge.met:
            _told[served_by(self.location)] = command, self.knowledge

    def _told_here(self) -> Knowledge | None:
        """What the last answer of this command says of the repository that this branch is in, if it does."""
        command, told = current(), _told.get(served_by(self.location))
        if command is None or told is None or told[0] is not command:
            return None
        known = told[1].beside(self.path)
        return known if known.at == told[1].at and known.vcs == VCS else None

    def told_by(self, other: Remote) -> None:
        """Learn from an answer about another branch of the repository."""
        self.knowledge = self.repository.knowledge = other.knowledge.beside(self.path)
        self.learned()

    def load(self) -> None:
        """Write the state of the branch into the files, and have those that read them before read them again."""
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
        """Ask again at the next look: the last lock of a program has ended."""
        if not self._written:
            self.seen, self.level, self.is_assumed = None, None, False

    def state(self) -> State:
        """What it is.

        Raises:
            NotBranchError: there is no branch.
        """
        self.look()
        return self.there()

    def tip(self) -> RevisionId | None:
        """The tip; None where there is no branch."""
        with contextlib.suppress(errors.NotBranchError):
            self.look()
        return None if self.seen is None else self.seen.tip

    # -- its history

    def bring(self, revisions: Sequence[RevisionId], *, by_name: bool) -> bool:
        """Receive what is lacking of the history, if it was not asked for yet, else revisions that the server has
        besides: tips that it said, and where it is `by_name` any. Whether anything was asked.
        """
        wanted = [each for each in revisions if each not in self.refused and each not in self._ghosts]
        tip = None if self.seen is None else self.seen.tip
        if self.level is Level.REFS and (tip is None or self.mirror().has(tip)):
            self.level = Level.HISTORY
        if wanted and self.level is not Level.HISTORY:
            self.ask_for(Level.HISTORY)
            return True
        if not by_name:
            tips = {*self.knowledge.tips(), *self.told}
            wanted = [each for each in wanted if each in tips]
        if not wanted:
            return False
        try:
            with self.words():
                self._ask_history(wanted)
        except errors.BzrError as wrong:
            if not isinstance(wrong.__cause__, MissingRevision):
                raise
            self.refused.update(wanted)
        return True

    def opened(self, tree: Any) -> None:
        """Take note of a lightweight checkout; what it rests on comes, where the branch was asked and has lost it."""
        self.trees.add(tree)
        with contextlib.suppress(errors.BzrError, OSError), tree.lock_read():
            state = tree.current_dirstate()
            self._ghosts.update(state.get_ghosts())
            parents = [each for each in state.get_parent_ids() if each not in self._ghosts]
            self._rests_on.update(dict.fromkeys(parents))
            self._bases.update(parents[:1])
        lacking = self.lacking_of_trees()
        if lacking:  # What differs from it is read without a look at the branch.
            with contextlib.suppress(errors.ConnectionError, errors.NotBranchError):  # It may not be read at all.
                if self.level is not Level.HISTORY:
                    self.ask_for(Level.HISTORY)
                    lacking = self.lacking_of_trees()
                self.bring(lacking, by_name=True)
            self._say_gone(each for each in lacking if each in self.refused)

    def _say_gone(self, revisions: Iterable[RevisionId]) -> None:
        """Say that what a tree rests on is nowhere."""
        for each in revisions:
            if each not in self._bases:
                continue  # What was merged may not have been sent.
            self.gone = GONE.format(shown(each), self.url)
            trace.warning("hpss: %s", self.gone)

    def lacking_of_trees(self) -> list[RevisionId]:
        """What the trees of lightweight checkouts rest on and the mirror lacks: the branch may have lost it."""
        return [each for each in self._rests_on if not (self.knowledge.met and self.mirror().has(each))]

    def is_named(self, revision: RevisionId) -> bool:
        """Whether a revision is likely to be on the server though no branch reaches it: the user or a tag names it. A
        program knows what it asks for.
        """
        if current() is None or revision in (self.seen.tags.values() if self.seen is not None else ()):
            return True
        specs = [str(getattr(each, "user_spec", "")) for each in given("revision") or ()]
        return any(revision.decode("utf-8", "replace") in each for each in specs)

    # -- changes

    def write(self, name: str, content: bytes) -> None:
        """Change one of the files."""
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
        """Leave the branch as it is."""
        self._written.clear()
        self.load()

    def send(self) -> None:
        """Send what was changed, in one request.

        Raises:
            Outdated: the branch is not what it was taken for.
        """
        written, self._written = self._written, {}
        try:
            seen = self.there()
            updates, maps = self._requests(seen, written)
            if updates or maps:
                self._change(seen, updates, maps)
            elif self.is_assumed:
                self.is_assumed = False
                self.ask_for(Level.REFS)
                if not _is_same(seen, self.seen):
                    raise Outdated(self.url)
        finally:
            self.load()

    def _requests(self, seen: State, written: dict[str, bytes]) -> tuple[list[RefUpdate], list[MapUpdateRequest]]:
        updates: list[RefUpdate] = []
        maps: list[MapUpdateRequest] = []
        if TIP_FILE in written:
            number, tip = tip_of(written[TIP_FILE])
            if tip != seen.tip:
                updates.append(RefUpdate(HERE, tip, Rule.LEASE, Create.NO, seen.tip or b"", b"%d" % number))
        if TAGS_FILE in written:
            entries = changed_tags(seen.tags, written[TAGS_FILE])
            if self.is_assumed and not updates and any(each.value for each in entries):
                updates.append(stays(seen))  # A tag of what is remembered as the tip is one of the tip.
            maps += tags_updates(entries, strict=True)
        options = written.get(OPTIONS_FILE, seen.config)
        if options != seen.config:
            maps.append(options_change(options, seen.config))
        elif updates and updates[0].tip != seen.tip:
            maps.append(options_are(seen.config))
        return updates, maps

    def _change(self, seen: State, updates: list[RefUpdate], maps: list[MapUpdateRequest]) -> None:
        moved = [each.tip for each in updates if each.tip is not None and each.tip != seen.tip]
        is_here = bool(moved) and all(map(self.mirror().has, moved))  # Of what is not here, the server has it.
        source = Lacking(BrzRepository(self.mirror().whole())) if is_here else None
        with self.words():
            error = self.push(updates, maps, source).error()
            if isinstance(error, (StaleLease, StaleEntry, DivergedBranches, BranchExists)):
                self.learn_refusal()
                self.level = Level.REFS
                raise Outdated(self.url) from error
            if error is not None:
                raise error
            self.learned()

    def push(
        self, updates: Sequence[RefUpdate], maps: Sequence[MapUpdateRequest], *arguments: Any, **options: Any
    ) -> PushOutcome:
        """As of `Place`. A command that has changed something cannot run again; to set an option twice is no harm."""
        pushed = super().push(updates, maps, *arguments, **options)
        command = current()
        if pushed.error() is not None:
            self.is_assumed = False  # It was not asked, but has said what is there.
        elif command is not None and (updates or any(each.map != CONFIG for each in maps)):
            command.has_changed = True
        self._tell()
        return pushed

    def send_beside(self, repository: Any, revisions: Sequence[RevisionId]) -> None:
        """Have the server keep revisions of a repository that none of its branches leads to yet."""
        if not revisions:
            return
        with repository.lock_read(), self.words():
            self.change([stays(self.state())], (), Lacking(BrzRepository(repository), revisions))

    def is_now(self) -> None:
        """Take the answer to a push for what it is."""
        self.learned()
        self.level = self.level or Level.REFS

    def ask(self, verb: AnyVerb, arguments: Arguments) -> Any:
        """As of `Place`."""
        done = super().ask(verb, arguments)
        self.level = self.level or Level.REFS
        return done

    def delete(self) -> bool:
        """Remove the branch; whether there was one."""
        with self.words():
            return bool(self.change([RefUpdate(HERE, None)]).refs[0].old)

    def is_beside(self, other: Remote) -> bool:
        """Whether both are on one server."""
        return self.server is other.server

    def is_in_repository_of(self, other: Remote) -> bool:
        """Whether both are branches of one repository, as far as is known of the other."""
        at = other.knowledge.at
        return self.is_beside(other) and at is not None and self.knowledge.met and self.knowledge.at == at

    def new_repository(self) -> NewRepository:
        """As what the repository is made where there is none."""
        return NewRepository(VCS, KINDS)


def _is_same(one: State | None, other: State | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.tip, dict(one.tags), one.config) == (other.tip, dict(other.tags), other.config)


def remote_of(branch: Any) -> Remote | None:
    """The branch on a server that an object of Breezy's is; None for a local one."""
    found = getattr(branch, "remote", None)
    return found if isinstance(found, Remote) else None


_told: dict[str, tuple[hpss.RunningCommand, Knowledge]] = {}
"""By server, the command whose answer was the last, and what that said."""

_remotes: dict[tuple[str, str, bool], tuple[hpss.RunningCommand, Remote]] = {}
"""Those of the command that runs, by server and path."""


def remote_at(transport: HpssTransport, name: str = "", *, inside: bool = False) -> Remote:
    """The branch of a place: in a command the same one each time it is opened."""
    made = Remote(transport, name, inside=inside)
    command = current()
    if command is None:
        return made
    key = served_by(made.location), made.path, inside
    found = _remotes.get(key)
    if found is None or found[0] is not command:
        _remotes[key] = found = command, made
    return found[1]


def share(transport: HpssTransport, remote: Remote) -> None:
    """Have what was asked of a path inside of a branch be known of the branch's own path."""
    command = current()
    if command is not None:
        own = Remote(transport)
        _remotes[served_by(own.location), own.path, False] = command, remote


def explain(error: Exception) -> None:
    """Say so where a command failed because a mirror is damaged, or because what its tree rests on is nowhere.

    Raises:
        CommandError: so it is.
    """
    is_plain = isinstance(error, errors.BzrError) and not error.internal_error
    if is_plain and not (isinstance(error, UNREAD) or type(error).__module__.startswith("breezy.bzr.")):
        return
    gone = [remote.gone for command, remote in _remotes.values() if command is current() and remote.gone]
    why = damage() or "".join(gone[:1])
    if why:
        raise errors.CommandError(why) from error
