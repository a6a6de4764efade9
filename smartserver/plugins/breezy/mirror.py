"""`Mirror`: a stock Breezy repository on this disk, with the history that was received from a repository on a
server."""

# Theory of operation
#
# A command of Breezy reads whatever it likes, and each read of a server would cost a round trip. So the history of a
# branch is received once, later only its new revisions, and Breezy reads the mirror.
#
# The rules:
#
# - A mirror has whole revisions: the parents of each are there too, except ghosts. It has no branches: their state is
#   in the server's last answer (`client.knowledge`). So a mirror may be deleted, or be older than that answer, at any
#   time; that costs bytes, never a wrong result.
# - Revisions are inserted in write groups of Breezy's, by one process at a time. Breezy names a pack by its content
#   and writes indexes in place: two processes that insert the same history would tear each other's indexes. The locks
#   are the system's (`FileLock`), so none outlives its process. A killed process leaves a file in `upload/` that
#   nothing names, which the next writer removes (`tidy`).
# - An answer is spooled before it is inserted (`Spool`); one that is broken off is inserted as far as it came.
# - Damage is found when a mirror is opened (sizes and ends of files), or after a command has failed (the checksums that
#   are the names of packs). A damaged mirror is deleted, and received again.
#
# The hard case: a user works in a local branch, so new revisions on the server have local parents that the mirror
# lacks, and that need not be sent. They are copied to the mirror (`adopt`) if that is cheap. Else the new revisions
# are put into a repository in memory, stacked on the mirror and the local repository, and `_above` has it: every
# repository that Breezy has opened on the mirror (`_attached`) gets it as a fallback. Before something is written
# into the mirror, `settle` copies the history that the branch needs and drops `_above`, since a mirror must not be
# stacked on a repository that may go away.
#
# Without a home, with the limit 0, or where the disk cannot be written to, a mirror is in memory.
#
# It is ugly that fallbacks are removed by hand (`settle`): Breezy has no call for it.

from __future__ import annotations

import contextlib
import errno
import os
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import breezy
from breezy import errors, trace
from breezy.bzr.groupcompress_repo import CHKInventoryRepository
from breezy.config import GlobalStack, Option, int_SI_from_store, option_registry
from breezy.controldir import ControlDir
from breezy.lockable_files import LockableFiles
from breezy.transport import get_transport_from_path
from breezy.transport.memory import MemoryTransport

from smartserver.client.mirrors import MIRROR_BYTES, MirrorFolder, Mirrors, discard
from smartserver.client.places import served_by
from smartserver.plugins.breezy.mirror_files import (
    Damaged,
    FileLock,
    check_files,
    check_packs,
    decoding,
    is_no_room,
    short,
    size_of_packs,
    tidy,
)
from smartserver.plugins.breezy.place import Place
from smartserver.plugins.breezy.server import cache_folder
from smartserver.plugins.breezy.spool import Spool
from smartserver.records.model import RevisionId
from smartserver.vcs.bzr.compat import format_2a
from smartserver.vcs.bzr.packs import copy_packs
from smartserver.vcs.bzr.repository import STORES, BrzRepository
from smartserver.verbs.fields import MAX_IDS
from smartserver.verbs.repository_pull import MAX_HAVES

SIZE = Option(
    "hpss.mirror_size",
    default=str(MIRROR_BYTES),
    from_unicode=int_SI_from_store,
    invalid="warning",
    help="Bytes (500M, 2G) that a local mirror of one hpss:// repository may take, and all of them four times that. "
    "0: mirrors are in memory, for one command.",
)
LARGE = Option(
    "hpss.large_history",
    default="32M",
    from_unicode=int_SI_from_store,
    invalid="warning",
    help="Bytes (32M, 1G) of history from which on a line is printed before a mirror receives it for the first time.",
)
option_registry.register(SIZE)
option_registry.register(LARGE)

FOLDER: Final = "mirrors"
OLDER: Final = 8
"""The most haves that a pull sends in addition to the heads."""

MAKING: Final = 2.0
"""Seconds that a process waits for a mirror that another process creates."""

MOST_COPIED: Final = 2000
"""The most revisions of a local repository that are copied to a mirror by Breezy's own fetch, at a millisecond each."""


def mirrors() -> Mirrors | None:
    """Return the mirrors of this user; None if no folder for caches is known. With the limit 0, no mirror is kept, but
    older mirrors may exist."""
    remotes = cache_folder()
    limit: int | None = GlobalStack().get(SIZE.name)
    return None if remotes is None else Mirrors(os.path.join(os.path.dirname(remotes), FOLDER), limit or 0)


class MirrorRepository(CHKInventoryRepository):  # type: ignore[misc]  # Breezy is not typed.
    """A mirror as a repository that makes no requests, with locks of the operating system."""

    def __init__(self, control: Any, transport: Any) -> None:
        known = format_2a().repository_format
        files = LockableFiles(transport, "lock", FileLock)
        super().__init__(known, control, files, known._commit_builder_class, known._serializer)

    def has_same_location(self, other: Any) -> bool:
        """Tell whether both are the same object. Locations are not compared, because all repositories in memory have
        one URL."""
        return other is self


def in_memory(*below: Any) -> Any:
    """Return a new repository in memory, stacked on the repositories `below`."""
    made = format_2a().initialize_on_transport(MemoryTransport()).create_repository()
    for repository in below:
        made.add_fallback_repository(repository)
    return made


class Mirror:
    """The mirror of one repository. It is shared by all branches of the repository that this process reads."""

    def __init__(self, url: str, folder: MirrorFolder | None) -> None:
        """`url`: the URL of the repository, for messages. `folder`: the folder of the mirror; None for a mirror in
        memory."""
        self.url = url
        self._folder = folder
        self._control: Any = None
        self._transport: Any = None
        self._above: list[Any] = []
        """Local repositories, and repositories in memory, with revisions that are not in the mirror."""
        self._attached: weakref.WeakSet[Any] = weakref.WeakSet()
        """Breezy's repositories on this mirror, which must be notified of received revisions."""
        self._is_full = False
        self._adds = False
        """True while this process holds the lock that makes other processes wait to add revisions. A commit does not
        take this lock."""
        self.is_shared = False
        """True if all objects of this process that read the repository use this mirror."""

    # -- its place

    def __repr__(self) -> str:
        return f"Mirror({self.url})"

    def _find(self) -> None:
        """Open the mirror, or create it."""
        if self._transport is not None:
            return
        if self._folder is not None:
            try:
                self._control = self._on_disk(self._folder)
                self._transport = self._control.transport.clone("repository")
                return
            except (OSError, errors.BzrError) as error:
                self._in_memory(str(error))
        self._control = format_2a().initialize_on_transport(MemoryTransport())
        self._transport = self._control.create_repository()._transport

    def _in_memory(self, why: str) -> None:
        trace.note("hpss: the history of %s is held in memory, not kept: %s", self.url, short(why))
        self._folder = None

    def _on_disk(self, folder: MirrorFolder) -> Any:
        """Return the control directory in a folder, and replace a damaged one by an empty one.

        Raises:
            OSError, BzrError: there is none, and none can be created.
        """
        if folder.use():
            try:
                check_files(folder.path)
                folder.remove_older()
                return ControlDir.open(folder.path)
            except (Damaged, errors.BzrError) as error:
                self._throw_away(folder, error)
        deadline = time.monotonic() + MAKING
        while not folder.use():
            with folder.writing() as alone:
                if alone and not folder.use():
                    path = folder.begin()
                    made = format_2a().initialize_on_transport(get_transport_from_path(path))
                    made.create_repository(shared=True)
                    folder.publish(path)
            if not alone and time.monotonic() > deadline:
                raise OSError(errno.EBUSY, "another process is still creating this mirror", folder.path)
        return ControlDir.open(folder.path)

    def _throw_away(self, folder: MirrorFolder, error: BaseException) -> None:
        folder.throw_away()
        trace.warning("hpss: the local mirror of %s is damaged: fetching it again (%s)", self.url, short(str(error)))

    @property
    def is_sound(self) -> bool:
        """True unless the mirror's folder was removed."""
        return self._folder is None or self._transport is None or os.path.isdir(self._folder.path)

    @property
    def transport(self) -> Any:
        """The transport of the mirror's files."""
        self._find()
        return self._transport

    def open(self) -> Any:
        """Return the mirror as a Breezy repository that makes no requests."""
        self._find()
        return MirrorRepository(self._control, self._transport)

    def whole(self) -> Any:
        """Return a Breezy repository with the revisions of the mirror and of the repositories that extend it."""
        made = self.open()
        for repository in self._above:
            made.add_fallback_repository(repository)
        return made

    def attach(self, repository: Any) -> Any:
        """Let a repository on the mirror's files see the revisions that are received now or later. Return the
        repository."""
        self._attached.add(repository)
        for above in self._above:
            repository.add_fallback_repository(above)
        return repository

    # -- its content

    def has(self, revision: RevisionId) -> bool:
        """Tell whether the mirror, or a repository that extends it (`whole`), has a revision."""
        whole = self.whole()
        with whole.lock_read():
            return bool(whole.has_revision(revision))

    def haves(self, tips: Iterable[RevisionId]) -> tuple[list[RevisionId], list[RevisionId]]:
        """Return the haves of a pull: revisions of the mirror, heads first, and the ghosts below them.

        `tips`: all known tips that branches of the server have or had.
        """
        self._find()
        for _ in range(2):
            try:
                with decoding():
                    return self._haves(tips)
            except Damaged as error:
                self._start_again(error)
        return [], []

    def _haves(self, tips: Iterable[RevisionId]) -> tuple[list[RevisionId], list[RevisionId]]:
        local = BrzRepository(self.open())
        with local.locked():
            found = local.complete_haves(tips, MAX_HAVES)
            if not found:
                return [], []
            # The heads include the others. Some others are named for a server that was restored to an older state.
            graph: Any = local.breezy.get_known_graph_ancestry(found)
            heads = graph.heads(found)
            absent = local.absent(heads)
        return sorted(found, key=lambda revision: revision not in heads)[: len(heads) + OLDER], absent[:MAX_IDS]

    def _start_again(self, error: BaseException) -> None:
        """Delete the mirror, and create an empty mirror in its place."""
        if self._folder is None:
            raise errors.BzrError(str(error)) from error
        self._throw_away(self._folder, error)
        self._transport = None
        self._find()
        self._refresh()

    def _refresh(self) -> None:
        for repository in self._attached:
            if repository.is_locked() and not repository.is_in_write_group():
                repository.refresh_data()

    # -- received revisions

    def receive(self, spool: Spool, *, beside: Sequence[Any] = (), is_first: bool = False) -> None:
        """Insert received revisions. `beside`: local repositories with parents of these revisions, which the mirror may
        lack. `is_first`: True if the mirror has no parent of these revisions.

        Raises:
            Damaged: the mirror was damaged, and is empty now.
            CodedError, MediumError, ProtocolError, Malformed, KeyboardInterrupt: the answer was broken off.
        """
        self._find()
        if not spool.revisions:
            pass
        elif beside or self._is_full:
            made = in_memory(self.open(), *beside)
            spool.insert_into(made)
            self._put_above(made)
        elif self._folder is None:
            spool.insert_into(self.open())
        else:
            self._add(self._folder, spool, is_first=is_first)
        if spool.broken is not None:
            raise spool.broken
        self._refresh()

    def adopt(self, repository: Any, revisions: Sequence[RevisionId]) -> bool:
        """Copy the history of some revisions from a local repository, because they are parents of received revisions.
        Return True if it was copied. Packs are copied as files if the mirror is empty and this history is all that the
        repository has. Otherwise a history of more than `MOST_COPIED` revisions is not copied."""
        self._find()
        folder = self._folder
        if folder is None or self._is_full:
            return False
        local = BrzRepository(repository)
        try:
            with decoding(), self._adding(folder), repository.lock_read():
                mine = self.open()
                with mine.lock_write():
                    missing = local.ancestry(revisions, list(BrzRepository(mine).heads()))
                    is_all = not mine._pack_collection.names() and len(missing) == len(repository.all_revision_ids())
                    if is_all and not repository._fallback_repositories:
                        return folder.takes(size_of_packs(repository)) and copy_packs(repository, mine)
                    if len(missing) > MOST_COPIED:
                        return False
                    for revision in revisions:
                        mine.fetch(repository, revision)
        except Damaged as error:
            trace.mutter("hpss: local history is not copied to the mirror: %s", error)
            return False
        self._refresh()
        return True

    def rest_on(self, repository: Any) -> None:
        """Add a local repository that extends the mirror in this process. It has all revisions that the server would
        send."""
        self._put_above(repository)

    def settle(self, tip: RevisionId | None) -> None:
        """Before a write group, copy the history of a branch from the repositories above the mirror, and drop these
        repositories."""
        mine = self.open()
        for above in self._above:
            with above.lock_read():
                if tip is not None and above.has_revision(tip):
                    mine.fetch(above, tip)
        self._above.clear()
        for repository in self._attached:
            for above in repository._fallback_repositories if repository.is_locked() else ():
                above.unlock()
            repository._fallback_repositories.clear()
            for name in STORES.values():
                getattr(repository, name)._immediate_fallback_vfs.clear()
        self._refresh()

    def _put_above(self, repository: Any) -> None:
        self._above.append(repository)
        for attached in self._attached:
            attached.add_fallback_repository(repository)

    def _add(self, folder: MirrorFolder, spool: Spool, *, is_first: bool) -> None:
        if not folder.takes(spool.size):
            said = "hpss: the mirror of %s would exceed %s: it is deleted when this command ends"
            trace.note(said, self.url, SIZE.name)
            breezy.get_global_state().exit_stack.callback(discard, folder.path)
        try:
            with decoding(), self._adding(folder):
                spool.insert_into(self.open())
        except Damaged as error:
            if spool.broken is not None:
                return
            if is_no_room(error):
                self._is_full = True
                trace.note("hpss: the history of %s is held in memory, not kept: %s", self.url, short(str(error)))
                self.receive(spool)
                return
            if is_first and error.__cause__ is not None:
                raise error.__cause__ from None  # The answer is wrong: the mirror had no parent of its revisions.
            self._start_again(error)
            raise

    def add_signatures(self, signatures: Any) -> None:
        """Add signatures that were made after their revisions."""
        with contextlib.suppress(OSError, errors.BzrError):  # The next command adds them.
            BrzRepository(self.open()).add_signatures(signatures)

    @contextmanager
    def writing(self, *, commits: bool) -> Iterator[None]:
        """Hold the locks for one of Breezy's write groups. With `commits`, other processes may add revisions meanwhile:
        a commit may last long, and no other process adds its revision."""
        if self._folder is None:
            yield
            return
        with self._adding(self._folder, known=not commits):
            yield

    @contextmanager
    def _adding(self, folder: MirrorFolder, *, known: bool = True) -> Iterator[None]:
        """Hold the locks for adding to the folder, unless this process already does. `known`: as in
        `MirrorFolder.adding`."""
        if self._adds:
            yield
            return
        with folder.adding(lambda: tidy(folder.path), known=known):
            self._adds = known
            try:
                yield
            finally:
                self._adds = False

    def damage(self) -> str:
        """Read the whole mirror, and remove it if it is damaged. Return the damage, or an empty string."""
        folder = self._folder
        if folder is None or self._transport is None:
            return ""
        try:
            check_files(folder.path)
            check_packs(folder.path)
        except Damaged as error:
            folder.throw_away()
            self._transport = None
            return short(str(error))
        return ""


_mirrors: dict[tuple[str, bytes], Mirror] = {}
"""The mirrors of this process, by the repository's URL and incarnation."""


def mirror_of(place: Place, *, makes: bool = True) -> Mirror:
    """Return the mirror of the repository of a branch. If the repository is unknown, or there is no mirror and `makes`
    is false, return an empty mirror in memory, which is used by no other object."""
    known = place.knowledge
    if known.known is None or known.at is None:
        return Mirror(place.url, None)
    url = served_by(place.location) + known.at
    key = url, known.known.incarnation
    found = _mirrors.get(key)
    if found is not None and found.is_sound:
        return found
    kept = mirrors()
    folder = None if kept is None or not kept.limit else kept.place(url, known.known.incarnation)
    if folder is not None and not makes and not os.path.isdir(folder.path):
        return Mirror(url, None)
    found = _mirrors[key] = Mirror(url, folder)
    found.is_shared = True
    return found


def damage() -> str:
    """Read the mirrors of this process, and remove a damaged one. Return a line about it, or an empty string."""
    for mirror in [*_mirrors.values()]:
        if why := mirror.damage():
            return f"the local mirror of {mirror.url} was damaged ({why}) and was removed: run the command again"
    return ""
