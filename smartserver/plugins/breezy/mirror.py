"""`Mirror`: a repository of Breezy's on this disk that has what was read of one on a server.

The problem: a command of Breezy reads whatever it likes, and each read of a server costs a round trip. So what a branch
reaches is brought here once, and from then on what is new of it; Breezy reads that.

The rules. A mirror has whole revisions: what a revision rests on is there, too, but for ghosts. It says nothing of what
branches are: that is known of the server's last answer (`client.knowledge`). So it may be gone, or be older than that,
at any time, and costs bytes then. It is written to in write groups of Breezy's: a process that is killed leaves a file
that nothing names, which the next writer removes. The system holds the locks, so that none outlives its process. What
came before the rest was broken off is kept.

What rests on local revisions that the mirror lacks is read once, from memory, above both. Without a home, with the
limit 0, or where the disk cannot be written to, a mirror lies in memory. Damage is found when a mirror is opened, by
sizes and ends of its files, or when a command fails, by the checksums that are the names of packs. It is thrown away
then.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import struct
import tempfile
import time
import weakref
import zlib
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final

import breezy
from breezy import errors, trace
from breezy.bzr.groupcompress_repo import CHKInventoryRepository
from breezy.config import GlobalStack, Option, int_SI_from_store, option_registry
from breezy.controldir import ControlDir
from breezy.lockable_files import LockableFiles
from breezy.transport import get_transport_from_path
from breezy.transport.local import LocalTransport
from breezy.transport.memory import MemoryTransport

from smartserver.client.exchange import PullAnswer
from smartserver.client.medium import MediumError
from smartserver.client.mirrors import MIRROR_BYTES, MirrorFolder, Mirrors, discard
from smartserver.client.places import served_by
from smartserver.errors import CorruptRecord
from smartserver.plugins.breezy.place import Place
from smartserver.plugins.breezy.server import cache_folder
from smartserver.plugins.breezy.terminal import moving
from smartserver.records.limits import MAX_TAKEN
from smartserver.records.model import RevisionId
from smartserver.records.segment import SegmentStream, decode_revision
from smartserver.records.varint import Malformed
from smartserver.vcs.base import VcsError
from smartserver.vcs.bzr.compat import format_2a
from smartserver.vcs.bzr.packs import copy_packs
from smartserver.vcs.bzr.repository import STORES, BrzRepository
from smartserver.verbs.fields import MAX_IDS
from smartserver.verbs.repository_pull import MAX_HAVES
from smartserver.wire.errors import ProtocolError
from transports.errors import CodedError

SIZE = Option(
    "hpss.shadow_size",
    default=str(MIRROR_BYTES),
    from_unicode=int_SI_from_store,
    help="Bytes (500M, 2G) that a local mirror of one hpss:// repository may take, and all of them four times that. "
    "0: mirrors are in memory, for one command.",
)
LARGE = Option(
    "hpss.large_history",
    default="32M",
    from_unicode=int_SI_from_store,
    help="Bytes (32M, 1G) of history from which on a line is printed before a mirror receives it for the first time.",
)
option_registry.register(SIZE)
option_registry.register(LARGE)

FOLDER: Final = "mirrors"
OLD_FOLDER: Final = "shadows"
"""Where an earlier release kept histories."""

OLDER: Final = 8
"""Revisions that are named to the server besides the newest ones."""

NO_ROOM: Final = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST,
)  # fmt: skip
"""Why something cannot be written to a disk that is sound."""

IN_MEMORY: Final = 4 << 20
"""Bytes of what comes before it becomes a file."""

LONGEST: Final = 200
"""Characters of what Breezy says of damage."""

MAKING: Final = 2.0
"""Seconds that a process waits for a mirror that another one makes."""


MOST_COPIED: Final = 2000
"""Revisions of a local repository that are copied to a mirror by Breezy's own fetch, which takes a millisecond each."""


class Damaged(Exception):
    """What is in a mirror is not what ought to be there."""


def mirrors() -> Mirrors | None:
    """Where this user's are; None: nowhere. With the limit 0 nothing is kept, but may lie there still."""
    remotes = cache_folder()
    limit: int | None = GlobalStack().get(SIZE.name)
    return None if remotes is None else Mirrors(os.path.join(os.path.dirname(remotes), FOLDER), limit or 0)


class FileLock:
    """A lock on a mirror that the system holds, and that ends with its process. To Breezy as one of its own."""

    def __init__(self, transport: Any, name: str, file_modebits: object, dir_modebits: object) -> None:
        self._path: str | None = None
        self._file: int | None = None
        if isinstance(transport, LocalTransport):
            self._path = transport.local_abspath(f"{name}.names")

    def create(self, mode: object = None) -> None:
        """It need not be made."""

    def lock_write(self, token: object = None) -> None:
        """Wait until no other process holds it."""
        if self._path is not None:
            file = os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            self._file = file

    def lock_read(self) -> None:
        """Readers need no lock."""

    def unlock(self) -> None:
        """Let the next one have it."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def validate_token(self, token: object) -> None:
        """There are none."""

    def peek(self) -> None:
        """It says nothing of who holds it."""

    break_lock = leave_in_place = dont_leave_in_place = create


class MirrorRepository(CHKInventoryRepository):  # type: ignore[misc]  # Breezy is not typed.
    """A mirror as a repository that asks nobody, with locks of the system."""

    def __init__(self, control: Any, transport: Any) -> None:
        known = format_2a().repository_format
        files = LockableFiles(transport, "lock", FileLock)
        super().__init__(known, control, files, known._commit_builder_class, known._serializer)

    def has_same_location(self, other: Any) -> bool:
        """Whether it is the same object: all that is in memory has one URL."""
        return other is self


def in_memory(*below: Any) -> Any:
    """A new repository in memory that has what others have."""
    made = format_2a().initialize_on_transport(MemoryTransport()).create_repository()
    for each in below:
        made.add_fallback_repository(each)
    return made


class Mirror:
    """The mirror of one repository, for all branches of it that this process reads."""

    def __init__(self, url: str, folder: MirrorFolder | None) -> None:
        """`url`: as messages name the repository. `folder`: its place; None: in memory."""
        self.url = url
        self._folder = folder
        self._control: Any = None
        self._transport: Any = None
        self._above: list[Any] = []
        """What came and is not in it, as it rests on local revisions, or there is no room."""
        self._attached: weakref.WeakSet[Any] = weakref.WeakSet()
        """The repositories that Breezy reads, which have to see what comes."""
        self._is_full = False
        self._adds = False
        """Whether this process holds the lock under which it is added to."""
        self.is_shared = False
        """Whether all objects of this process that read the repository have this one."""

    # -- where it lies

    def __repr__(self) -> str:
        return f"Mirror({self.url})"

    def _find(self) -> None:
        """Open it, or make it."""
        if self._transport is not None:
            return
        if self._folder is not None:
            try:
                self._control = self._on_disk(self._folder)
                self._transport = self._control.transport.clone("repository")
                return
            except (OSError, errors.BzrError) as wrong:
                self._in_memory(str(wrong))
        self._control = format_2a().initialize_on_transport(MemoryTransport())
        self._transport = self._control.create_repository()._transport

    def _in_memory(self, why: str) -> None:
        trace.note("hpss: the history of %s is held in memory, not kept: %s", self.url, _short(why))
        self._folder = None

    def _on_disk(self, folder: MirrorFolder) -> Any:
        """Its control directory.

        Raises:
            OSError, BzrError: it is not there, and cannot be made.
        """
        if folder.use():
            try:
                check_files(folder.path)
                folder.remove_older()
                return ControlDir.open(folder.path)
            except (Damaged, errors.BzrError) as wrong:
                self._throw_away(folder, wrong)
        deadline = time.monotonic() + MAKING
        while not folder.use():
            with folder.writing() as alone:
                if alone and not folder.use():
                    path = folder.begin()
                    made = format_2a().initialize_on_transport(get_transport_from_path(path))
                    made.create_repository(shared=True)
                    folder.publish(path)
            if not alone and time.monotonic() > deadline:
                raise OSError(errno.EBUSY, "another process makes it", folder.path)
        return ControlDir.open(folder.path)

    def _throw_away(self, folder: MirrorFolder, wrong: BaseException) -> None:
        folder.throw_away()
        trace.warning("hpss: the local mirror of %s is damaged: fetching it again (%s)", self.url, _short(str(wrong)))

    @property
    def is_sound(self) -> bool:
        """Whether it is where it was found."""
        return self._folder is None or self._transport is None or os.path.isdir(self._folder.path)

    @property
    def transport(self) -> Any:
        """The place of its files."""
        self._find()
        return self._transport

    def open(self) -> Any:
        """It, as a repository of Breezy's that asks nobody."""
        self._find()
        return MirrorRepository(self._control, self._transport)

    def whole(self) -> Any:
        """The same with what came and is not in it."""
        made = self.open()
        for each in self._above:
            made.add_fallback_repository(each)
        return made

    def attach(self, repository: Any) -> Any:
        """Have a repository whose files are the mirror's see what comes; the same repository."""
        self._attached.add(repository)
        for each in self._above:
            repository.add_fallback_repository(each)
        return repository

    # -- what is in it

    def has(self, revision: RevisionId) -> bool:
        """Whether it has a revision, or what came besides has."""
        whole = self.whole()
        with whole.lock_read():
            return bool(whole.has_revision(revision))

    def haves(self, tips: Iterable[RevisionId]) -> tuple[list[RevisionId], list[RevisionId]]:
        """Revisions that it has, the most telling ones first, and the ghosts below them. `tips`: those ever seen."""
        self._find()
        for _ in range(2):
            try:
                with decoding():
                    return self._haves(tips)
            except Damaged as wrong:
                self._start_again(wrong)
        return [], []

    def _haves(self, tips: Iterable[RevisionId]) -> tuple[list[RevisionId], list[RevisionId]]:
        local = BrzRepository(self.open())
        with local.locked():
            found = local.complete_haves(tips, MAX_HAVES)
            if not found:
                return [], []
            # What the others have the heads have; a few of them are for a server that was put back to what it was.
            graph: Any = local.breezy.get_known_graph_ancestry(found)
            heads = graph.heads(found)
            absent = local.absent(heads)
        return sorted(found, key=lambda each: each not in heads)[: len(heads) + OLDER], absent[:MAX_IDS]

    def _start_again(self, wrong: BaseException) -> None:
        """Delete the mirror, and create an empty one in its place."""
        if self._folder is None:
            raise errors.BzrError(str(wrong)) from wrong
        self._throw_away(self._folder, wrong)
        self._transport = None
        self._find()
        self._refresh()

    def _refresh(self) -> None:
        for each in self._attached:
            if each.is_locked() and not each.is_in_write_group():
                each.refresh_data()

    # -- what comes

    def receive(self, coming: Coming, *, beside: Sequence[Any] = (), is_first: bool = False) -> None:
        """Take what comes. `beside`: the local repositories that have what it rests on and the mirror may lack.
        `is_first`: it rests on nothing that the mirror has.

        Raises:
            Damaged: the mirror was damaged, and is empty now; so it is.
            CodedError, MediumError, ProtocolError, Malformed, KeyboardInterrupt: not all of it came.
        """
        self._find()
        if not coming.revisions:
            pass
        elif beside or self._is_full:
            made = in_memory(self.open(), *beside)
            _insert(made, coming)
            self._put_above(made)
        elif self._folder is None:
            _insert(self.open(), coming)
        else:
            self._add(self._folder, coming, is_first=is_first)
        if coming.broken is not None:
            raise coming.broken
        self._refresh()

    def adopt(self, repository: Any, revisions: Sequence[RevisionId]) -> bool:
        """Copy the history of some revisions from a local repository, since what comes rests on them; whether that was
        done. Packs are copied as files where nothing is here yet and nothing else is there; else it must be short.
        """
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
                        return folder.takes(_size_of_packs(repository)) and copy_packs(repository, mine)
                    if len(missing) > MOST_COPIED:
                        return False
                    for each in revisions:
                        mine.fetch(repository, each)
        except Damaged as wrong:
            trace.mutter("hpss: local history is not copied to the mirror: %s", wrong)
            return False
        self._refresh()
        return True

    def rest_on(self, repository: Any) -> None:
        """Have what a local repository has, for this process: nothing came, as it has all of it."""
        self._put_above(repository)

    def settle(self, tip: RevisionId | None) -> None:
        """Copy what a branch has from the repositories above it, and forget them: it is going to be written to."""
        mine = self.open()
        for each in self._above:
            with each.lock_read():
                if tip is not None and each.has_revision(tip):
                    mine.fetch(each, tip)
        self._above.clear()
        for repository in self._attached:
            for each in repository._fallback_repositories if repository.is_locked() else ():
                each.unlock()
            repository._fallback_repositories.clear()
            for name in STORES.values():
                getattr(repository, name)._immediate_fallback_vfs.clear()
        self._refresh()

    def _put_above(self, repository: Any) -> None:
        self._above.append(repository)
        for each in self._attached:
            each.add_fallback_repository(repository)

    def _add(self, folder: MirrorFolder, coming: Coming, *, is_first: bool) -> None:
        """Write what comes to the disk."""
        if not folder.takes(coming.size):
            trace.note("hpss: the history of %s takes more than %s: it is kept for this command", self.url, SIZE.name)
            breezy.get_global_state().exit_stack.callback(discard, folder.path)
        try:
            with decoding(), self._adding(folder):
                _insert(self.open(), coming)
        except Damaged as wrong:
            if coming.broken is not None:
                return
            if _is_no_room(wrong):
                self._is_full = True
                trace.note("hpss: the history of %s is held in memory, not kept: %s", self.url, _short(str(wrong)))
                self.receive(coming)
                return
            if is_first and wrong.__cause__ is not None:
                raise wrong.__cause__ from None  # What came is wrong, and nothing else.
            self._start_again(wrong)
            raise

    def add_signatures(self, signatures: Any) -> None:
        """Add signatures that came after their revisions."""
        with contextlib.suppress(OSError, errors.BzrError):  # It is asked for them again.
            BrzRepository(self.open()).add_signatures(signatures)

    @contextmanager
    def writing(self, *, commits: bool) -> Iterator[None]:
        """Around a write group of Breezy's own. That of a commit has what no other process has, and may take long."""
        if self._folder is None:
            yield
            return
        with self._adding(self._folder, known=not commits):
            yield

    @contextmanager
    def _adding(self, folder: MirrorFolder, *, known: bool = True) -> Iterator[None]:
        """Around what adds to the folder. What is read within a write group of this process may be received then."""
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
        """What is wrong with it, by all its checksums; empty where nothing is. It is thrown away where something is."""
        folder = self._folder
        if folder is None or self._transport is None:
            return ""
        try:
            check_files(folder.path)
            check_packs(folder.path)
        except Damaged as wrong:
            folder.throw_away()
            self._transport = None
            return _short(str(wrong))
        return ""


_mirrors: dict[tuple[str, bytes], Mirror] = {}
"""Those of this process, by the repository's URL and incarnation."""


def mirror_of(place: Place, *, makes: bool = True) -> Mirror:
    """The mirror of the repository of a branch. Where it is not known which that is, or there is none and it is not to
    be made: an empty one in memory, that is nobody else's.
    """
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
    if kept is not None and not _mirrors:
        _remove_old(kept)
    found = _mirrors[key] = Mirror(url, folder)
    found.is_shared = True
    return found


def _remove_old(kept: Mirrors) -> None:
    """Remove what an earlier release kept."""
    old = os.path.join(os.path.dirname(kept.folder), OLD_FOLDER)
    if os.path.isdir(old):
        discard(old)


def damage() -> str:
    """What is wrong with one of the mirrors of this process, by all checksums; empty where nothing is."""
    for mirror in [*_mirrors.values()]:
        if why := mirror.damage():
            return f"what was kept of {mirror.url} was damaged ({why}): it is removed; run the command again"
    return ""


# -- what comes


class Coming:
    """The revisions of an answer, as far as they come: spooled to a file, and inserted when no more comes."""

    def __init__(self, pulled: PullAnswer) -> None:
        self._body = pulled.body
        self.announced = pulled.result.segments
        self.size = pulled.result.size
        self.broken: BaseException | None = None
        """Why not all of them came."""
        self._spool: IO[bytes] = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115
        weakref.finalize(self, self._spool.close)
        self._places: dict[RevisionId, tuple[int, int]] = {}
        """Where each revision's segment lies in the spool."""
        self._end = 0

    def receive(self) -> None:
        """Receive all that comes; what came before the rest was broken off is whole."""
        try:
            for revision, segment in self._segments():
                self._spool.write(segment)
                self._places[revision] = (self._end, len(segment))
                self._end += len(segment)
        except (CodedError, MediumError, ProtocolError, Malformed, KeyboardInterrupt) as wrong:
            self.broken = wrong

    @property
    def revisions(self) -> Sequence[RevisionId]:
        """Those that came, parents before children."""
        return list(self._places)

    def segments(self, here: Container[RevisionId] = ()) -> Iterator[bytes]:
        """Their segments, but for those that are `here`."""
        for revision, (at, size) in self._places.items():
            if revision not in here:
                self._spool.seek(at)
                yield self._spool.read(size)

    def _segments(self) -> Iterator[tuple[RevisionId, bytes]]:
        stream = SegmentStream(graph_first=False, limit=MAX_TAKEN)
        came = 0
        seen: set[RevisionId] = set()
        outside: set[RevisionId] = set()
        with moving("Receiving revisions") as moved:
            for chunk in self._body:
                stream.feed(chunk)
                came += len(chunk)
                for segment in stream.segments():
                    header = decode_revision(segment, 0)  # The rest is read as it is inserted.
                    outside.update([parent.id for parent in header.parents if parent.id not in seen])
                    if header.revision in outside:
                        raise CorruptRecord(header.revision, b"", "came after a revision whose parent it is")
                    seen.add(header.revision)
                    yield header.revision, segment
                moved(came, len(seen), self.announced)
        stream.finish()
        if len(seen) != self.announced:
            raise CorruptRecord(b"", b"", f"the server sent {len(seen)} revisions, having announced {self.announced}")


def _insert(repository: Any, coming: Coming) -> None:
    """Put what came into a repository, but for what another process has put there meanwhile: Breezy would write a pack
    of the same name once more, over one that others read.
    """
    from smartserver.vcs.bzr.insert import insert

    with repository.lock_read():
        here = repository.get_parent_map(coming.revisions)
    if len(here) < len(coming.revisions):
        insert(BrzRepository(repository), coming.segments(here))


# -- what is on the disk


@contextmanager
def decoding() -> Iterator[None]:
    """Around whatever Breezy decodes of a mirror: raise `Damaged` for what it raises where a file is not what it wrote.

    It goes around Breezy's calls alone. An error that is a mistake of a program wherever it is raised (`TypeError`,
    `AttributeError`, `AssertionError`, a missing lock) passes unchanged.
    """
    try:
        yield
    except (errors.NotWriteLocked, errors.ObjectNotLocked):
        raise
    except (errors.BzrError, VcsError, OSError, zlib.error, struct.error, ValueError, LookupError) as wrong:
        raise Damaged(_short(str(wrong) or type(wrong).__name__)) from wrong


def check_files(path: str) -> None:
    """Check that the files of a mirror are there, as long as they are said to be, and end as they ought to.

    Raises:
        Damaged: one is not.
        OSError: it cannot be looked at.
    """
    repository = os.path.join(path, ".bzr", "repository")
    for name in ("format", "pack-names"):
        if not os.path.isfile(os.path.join(repository, name)):
            raise Damaged(f"{name} is no file")
    with decoding():
        disk = ControlDir.open(path).open_repository()
        BrzRepository(disk).check_format()
        with disk.lock_read():
            disk._pack_collection.ensure_loaded()
            names = dict(disk._pack_collection._names)
    suffixes = ("rix", "iix", "tix", "six", "cix")
    for name, sizes in names.items():
        for suffix, size in zip(suffixes, sizes, strict=False):
            _check_size(os.path.join(repository, "indices", f"{name}.{suffix}"), size)
        _check_size(os.path.join(repository, "packs", f"{name}.pack"), None)


def _check_size(path: str, size: int | None) -> None:
    try:
        with open(path, "rb") as file:
            found = file.seek(0, os.SEEK_END)
            if size is None and found:
                file.seek(-1, os.SEEK_END)
                if file.read(1) == b"E":  # The end of a container of Breezy's.
                    return
    except OSError as wrong:
        raise Damaged(f"{os.path.basename(path)}: {wrong.strerror}") from wrong
    if size is None or found != size:
        raise Damaged(f"{os.path.basename(path)} has {found} bytes" + ("" if size is None else f", expected {size}"))


def check_packs(path: str) -> None:
    """Check that each pack is what its name says, the MD5 of its content.

    Raises:
        Damaged: one is not.
    """
    packs = os.path.join(path, ".bzr", "repository", "packs")
    for name in os.listdir(packs):
        with open(os.path.join(packs, name), "rb") as file:
            if hashlib.file_digest(file, "md5").hexdigest() != name.removesuffix(".pack"):
                raise Damaged(f"{name} is not what its name says")


def tidy(path: str) -> None:
    """Remove what processes left that were ended while they wrote: nobody writes now."""
    uploads = os.path.join(path, ".bzr", "repository", "upload")
    with contextlib.suppress(NotADirectoryError):
        for name in os.listdir(uploads):
            os.unlink(os.path.join(uploads, name))


def _size_of_packs(repository: Any) -> int:
    transport = repository._pack_collection._pack_transport
    return sum(transport.stat(name).st_size for name in transport.list_dir("."))


def _is_no_room(wrong: BaseException) -> bool:
    """Whether something could not be written because the disk takes no more."""
    cause: BaseException | None = wrong
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in NO_ROOM:
            return True
        if isinstance(cause, errors.PermissionDenied):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _short(why: str) -> str:
    return " ".join(why.split())[:LONGEST]
