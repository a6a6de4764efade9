"""`Shadow`: a repository of Breezy's on this disk that has what earlier commands read of one on a server.

Only a command that needs history fills it. The server is asked first, every time: what it says the branch reaches is
shown, and nothing else of what is kept. Whatever goes wrong with the disk costs a round trip or memory, and a line.
"""

from __future__ import annotations

import errno
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from breezy import trace
from breezy.config import GlobalStack, Option, int_SI_from_store, option_registry
from breezy.errors import BzrError, CommandError, NotWriteLocked, ObjectNotLocked
from breezy.repository import Repository
from breezy.transport import get_transport_from_path

from smartserver.client.places import served_by
from smartserver.client.shadows import SHADOW_BYTES, Place, Shadows
from smartserver.errors import shown
from smartserver.plugins.breezy.branch_history import BranchHistory
from smartserver.plugins.breezy.history import History
from smartserver.plugins.breezy.server import cache_folder
from smartserver.plugins.breezy.signatures import add_late
from smartserver.plugins.breezy.stores import in_memory, made_at
from smartserver.records.model import RevisionId
from smartserver.vcs.base import VcsError
from smartserver.vcs.bzr.repository import BrzRepository
from smartserver.verbs.repository_pull import MAX_HAVES

SIZE = Option(
    "hpss.shadow_size",
    default=str(SHADOW_BYTES),
    from_unicode=int_SI_from_store,
    help="Bytes (500M, 2G) that may be kept of one hpss:// repository's history, and four times that of all. 0: none.",
)
option_registry.register(SIZE)

FOLDER = "shadows"

OLDER = 8
"""Revisions that are named to the server besides the newest ones."""

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR)
"""Why something cannot be written to a disk that is sound."""


def shadows() -> Shadows | None:
    """Where this user's are; None: nowhere. With the limit 0 nothing is kept, but may lie there still."""
    remotes = cache_folder()
    limit: int | None = GlobalStack().get(SIZE.name)
    return None if remotes is None else Shadows(os.path.join(os.path.dirname(remotes), FOLDER), limit or 0)


class Damaged(CommandError):  # type: ignore[misc]  # Breezy is not typed.
    """What is in a shadow is not what ought to be there: shown to the user only where fetching it anew did not help."""


LONGEST = 200
"""Characters of what Breezy says of damage."""


@contextmanager
def decoding() -> Iterator[None]:
    """Around whatever Breezy decodes of a shadow: raise `Damaged` for what it raises where a file is not what it wrote.

    It goes around Breezy's calls alone. An error that is a mistake of a program wherever it is raised (`TypeError`,
    `AttributeError`, `AssertionError`, a missing lock) passes unchanged.
    """
    try:
        yield
    except (Damaged, NotWriteLocked, ObjectNotLocked):
        raise
    except (BzrError, VcsError, OSError, zlib.error, struct.error, ValueError, LookupError) as wrong:
        raise Damaged(" ".join((str(wrong) or type(wrong).__name__).split())[:LONGEST]) from wrong


class Shadow:
    """The whole revisions of one branch as a repository: those that came, over what earlier commands kept."""

    def __init__(self, branch_history: BranchHistory, kept: Shadows | None) -> None:
        """`kept`: where they are kept on this disk; None: in memory alone."""
        self._branch_history = branch_history
        self._place = branch_history.place
        self._kept = kept if kept is not None and kept.limit else None
        self._folder: Place | None = None
        self._asked: Place | None = None
        """What was asked with."""
        self._disk: Any = None
        """What is kept, open and locked for reading."""
        self._is_whole = False
        """Whether all that the branch reaches is there."""
        self._joined: Any = None
        """What everything is read from."""
        self._parents: Mapping[RevisionId, tuple[RevisionId, ...]] | None = None
        self._is_settled = self._is_mended = False

    @property
    def keeps(self) -> bool:
        """Whether what a command reads is kept on this disk."""
        return self._kept is not None

    @property
    def _url(self) -> str:
        """What it is a shadow of, as messages name it: the command's URL may lead into a branch."""
        return served_by(self._place.location) + (self._place.knowledge.at or "")

    # -- before the server is asked

    def is_there(self) -> bool:
        """Whether anything is kept of the repository that was seen there last."""
        folder = self._find()
        try:
            return folder is not None and folder.use()
        except OSError:
            return False

    def haves(self) -> tuple[list[RevisionId], list[RevisionId]]:
        """Revisions that are kept with all they rest on, and the ghosts below these."""
        self._leave()
        is_there, self._asked = self.is_there(), self._folder
        if not is_there:
            return [], []
        try:
            self._disk = self._open()
            with decoding():
                local = BrzRepository(self._disk)
                found = local.complete_haves(self._place.knowledge.tips(), MAX_HAVES)
                # What the others have the heads have; a few of them are for a server that was put back to what it was.
                heads = self._disk.get_known_graph_ancestry(found).heads(found)
                absent = local.absent(heads)
        except Damaged as wrong:
            self._throw_away(wrong)
            return [], []
        return sorted(found, key=lambda each: each not in heads)[: len(heads) + OLDER], absent

    def _find(self) -> Place | None:
        """Where it is kept, by what is known of the server's repository."""
        known = self._place.knowledge
        if self._kept is None or known.known is None or known.at is None:
            return None
        folder = self._kept.place(self._url, known.known.incarnation)
        if self._folder is None or self._folder.name != folder.name:
            self._folder = folder
        return self._folder

    def _open(self) -> Any:
        assert self._folder is not None, "found"
        with decoding():
            _check_files(self._folder.path)
            disk = Repository.open(self._folder.path)
            BrzRepository(disk).check_format()
            disk.lock_read()
        return disk

    def _leave(self) -> None:
        """Go on without what is kept."""
        self._disk = self._joined = self._parents = None
        self._is_whole = self._is_settled = False

    def _throw_away(self, wrong: Damaged) -> None:
        if self._folder is not None:
            self._folder.throw_away()
        self._leave()
        trace.warning("hpss: what was kept of %s is damaged, and is fetched anew (%s)", self._url, wrong)

    # -- when it has answered

    def _settle(self) -> None:
        """Put what came to what is kept, where that makes a whole; if it does not fit together, ask anew."""
        if self._is_settled or self._kept is None:
            return
        if not self._branch_history.has_come:
            self._branch_history.ask(*self.haves())
        history = self._branch_history.arrived()
        self._is_settled = True
        self._place.there()
        if self._find() is not self._asked:  # The repository was made anew.
            self._disk = self._asked = None
        try:
            if self._fits(history):
                self._keep(history)
                return
        except Damaged as wrong:
            self._throw_away(wrong)
        self._again()

    def _again(self) -> None:
        """Ask for everything."""
        self._leave()
        self._is_settled = self._is_mended = True
        self._branch_history.ask_anew()
        history = self._branch_history.arrived()
        try:
            self._keep(history)
        except Damaged as wrong:
            trace.note("hpss: the history of %s is held in memory, not kept: %s", self._url, wrong)
            self._leave()
            self._is_settled = True

    def _below(self, history: History) -> set[RevisionId]:
        """What the branch rests on that did not come."""
        tip = self._place.there().tip
        assert tip is not None, "there is a branch"
        parents = history.parents
        return history.rests_on(parents) | {tip} - parents.keys()

    def _fits(self, history: History) -> bool:
        """Whether all that did not come is here."""
        below = self._below(history)
        if self._disk is not None:
            with decoding():
                below = below - set(self._disk.get_parent_map(below))
        target = self._branch_history.target
        if target is not None and below:
            with target.lock_read():
                below = below - set(target.get_parent_map(below))
        return not below

    def _keep(self, history: History) -> None:
        """Put what came to what is kept, if that makes a whole."""
        below = self._below(history)
        with decoding():
            here = set() if self._disk is None else set(self._disk.get_parent_map(below))
        if below - here:
            return  # It rests on what the local repository has, which may not be there the next time.
        if not history.parents:
            self._is_whole = True
        elif self._folder is not None and self._add(self._folder, history, below):
            self._disk, self._is_whole = self._open(), True

    def _add(self, folder: Place, history: History, below: set[RevisionId]) -> bool:
        """Write what came, and rests on what is `below`, to the disk; whether it is there."""
        is_there = False
        try:
            with decoding(), folder.writing() as alone:
                if not alone:
                    return False
                if not folder.takes(history.size):
                    trace.note("hpss: the history of %s takes more than hpss.shadow_size: not kept", self._url)
                    return False
                is_there = folder.use()
                path = folder.path if is_there else folder.begin()
                if is_there:
                    _tidy(path)
                disk = Repository.open(path) if is_there else made_at(get_transport_from_path(path))
                with disk.lock_read():
                    if below - set(disk.get_parent_map(below)):
                        return False  # Another process has thrown away what was there.
                with self._place.words():
                    _insert(disk, history)
                if not is_there:
                    folder.publish(path)
                    folder.use()
                return True
        except Damaged as wrong:
            if is_there and not _is_no_room(wrong):
                raise
            trace.note("hpss: the history of %s is held in memory, not kept: %s", self._url, wrong)
            return False

    # -- what is read of it

    def parents(self) -> Mapping[RevisionId, tuple[RevisionId, ...]]:
        """The parents of what came; where something is kept, of all the branch reaches."""
        if self._kept is None:
            return self._branch_history.history().parents
        self._settle()
        if self._disk is None:
            return self._branch_history.arrived().parents
        if self._parents is None:
            self._parents = self.try_twice(self._ancestry)
        return self._parents

    def _ancestry(self) -> Mapping[RevisionId, tuple[RevisionId, ...]]:
        tip = self._place.there().tip
        assert tip is not None, "there is a branch"
        joined = BrzRepository(self.joined())
        with decoding(), joined.locked():
            found = joined.ancestry([tip], ())
        if tip not in found:
            raise Damaged(f"the revision {shown(tip)} is missing")
        return found

    def shows(self, revisions: Collection[RevisionId]) -> set[RevisionId]:
        """Those that the branch reaches, or the local repository has."""
        reached = self.parents().keys() & revisions
        target = self._branch_history.target
        if target is not None and len(reached) < len(revisions):
            with target.lock_read():
                reached = reached | set(target.get_parent_map(set(revisions) - reached))
        return reached

    def is_on_disk(self) -> bool:
        """Whether what the branch reaches, or a part of it, is on this disk."""
        self._settle()
        return self._disk is not None

    def store(self, name: str) -> Any:
        """One of the stores as it is, with what the branch does not reach."""
        return getattr(self.joined(), name)

    def joined(self) -> Any:
        """What is kept, if that is whole; else what came in memory, over what is kept and the local repository."""
        if self._kept is None:
            made = self._in_memory(self._branch_history.history())
            add_late(self._place, made)
            return made
        if self._joined is None and self._is_whole:
            self._joined = self._disk
        elif self._joined is None:
            with decoding():
                self._joined = self._in_memory(self._branch_history.arrived())
            self._joined.lock_read()
        return self._joined

    def _in_memory(self, history: History) -> Any:
        """A repository in memory of what came, over what is kept and the local repository."""
        trace.mutter("hpss: %d revisions go into a repository in memory", history.count)
        made = in_memory(*[below for below in (self._disk, self._branch_history.target) if below is not None])
        with self._place.words():
            _insert(made, history)
        return made

    def try_twice(self, read: Callable[[], Any]) -> Any:
        """Read something; where what is kept turns out to be damaged, read it from what is fetched anew."""
        try:
            return read()
        except Damaged as wrong:
            if not self.mend(wrong):
                raise
        return read()

    def mend(self, wrong: Damaged) -> bool:
        """Fetch everything again; whether that was worth a try."""
        if self._disk is None or self._is_mended:
            return False
        self._throw_away(wrong)
        self._again()
        return True


def _insert(repository: Any, history: History) -> None:
    """Put what came into a repository, but for what is there."""
    from smartserver.vcs.bzr.insert import insert

    with repository.lock_read():
        here = repository.get_parent_map(history.parents)
    missing = history.parents.keys() - here.keys()
    if missing:
        insert(BrzRepository(repository), history.segments(missing))


def _check_files(path: str) -> None:
    """Raise IsADirectoryError where a file has become a folder: Breezy would make of that a mistake of its own."""
    repository = os.path.join(path, ".bzr", "repository")
    inner = [entry.path for name in ("indices", "packs") for entry in os.scandir(os.path.join(repository, name))]
    for name in (os.path.join(repository, "format"), os.path.join(repository, "pack-names"), *inner):
        if os.path.isdir(name):
            raise IsADirectoryError(errno.EISDIR, "a file has become a folder", name)


def _tidy(path: str) -> None:
    """Remove what a process left that was ended while it wrote: nobody else writes now."""
    repository = os.path.join(path, ".bzr", "repository")
    shutil.rmtree(os.path.join(repository, "lock", "held"), ignore_errors=True)
    uploads = os.path.join(repository, "upload")
    for name in os.listdir(uploads):
        os.unlink(os.path.join(uploads, name))


def _is_no_room(wrong: BaseException) -> bool:
    """Whether something could not be written because the disk takes no more."""
    cause: BaseException | None = wrong
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in NO_ROOM:
            return True
        cause = cause.__cause__ or cause.__context__
    return False
