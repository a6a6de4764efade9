"""A bare git repository with the content of a repository of the store, so that git's own `upload-pack` can serve it.

It is a cache: the store alone is authoritative, and a cache can be deleted at any time. It has its own folder:

    lock            flocked by the one process that changes the cache
    current         the generation in use, its record of the log, and the sizes of its files; the time of its
                    modification is that of the last use
    XXXXXXXX.git/   a generation: a bare repository whose refs are all in `packed-refs`, and its file `lease`

An update pulls what the cache lacks, puts that into a pack, replaces `packed-refs`, then `current`. A crash between two
of these steps leaves more objects than the refs need, and the next update does the rest.

A generation only gains objects. Git's protocol lets a client fetch any object in it by its id, so it only gets objects
that a ref of the store reached. A new generation is built if refs no longer reach all objects, if the cache is damaged,
or if the repository was recreated or had something removed. A process that serves a generation holds a shared flock on
its `lease` until it ends. A generation is deleted only under an exclusive flock, so a running `upload-pack` keeps its
objects.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from smartserver.client.replace import new_file
from smartserver.gateway import git_programs
from smartserver.plugins.git.fetch import Arrival, segments_of
from smartserver.records.model import RefValue, RevisionId
from smartserver.vcs.base import VcsError
from smartserver.vcs.git.bare import open_bare
from smartserver.vcs.git.insert import Inserter
from smartserver.vcs.git.names import HEAD, HEADS
from smartserver.vcs.git.repository import GitRepository, failure
from smartserver.verbs.repository_pull import MAX_HAVES

if TYPE_CHECKING:
    from smartserver.client.exchange import PullAnswer

log = logging.getLogger("smartserver")

MAX_PACKS: Final = 16
"""The number of packs above which they are joined, because git searches all of them in every request."""

FEW_REVISIONS: Final = 500
"""The number of revisions below which bitmaps are not worth their cost."""

MAX_IDS: Final = 60_000
"""The most revisions that a pull names by their ids (`verbs.repository_pull`). A pull of more requests all refs."""

QUICK_BUILD: Final = 10.0
"""If the last build took fewer seconds, a new generation is built as soon as refs no longer reach all objects."""

SLOW_BUILD_EVERY: Final = 3600.0
"""The fewest seconds between two generations if the last build took longer than `QUICK_BUILD`."""

_LEASE: Final = "lease"
_OF_ALL: Final = ("HEAD", "config", "packed-refs")
"""The files of a generation in addition to its packs."""


class StoreState(msgspec.Struct, frozen=True):
    """The state of a repository in the store to which a cache is updated."""

    vcs: str
    incarnation: bytes
    version: int
    record: bytes
    """The hash of the log's record number `version`."""
    mark: int
    revisions: int
    """The number of stored revisions."""
    refs: Callable[[], Mapping[bytes, RefValue]]
    head: bytes


Now = Callable[[], StoreState]
"""A function that reads the newest state from the store."""

Pull = Callable[[StoreState, Sequence[RevisionId], Sequence[RevisionId] | None], "PullAnswer"]
"""A function that pulls from the store. Its arguments are a state, haves, and wants. If the wants are None, it pulls
all revisions that the refs reach."""


class Current(msgspec.Struct, frozen=True):
    """The content of the file `current`."""

    generation: str
    vcs: str
    incarnation: bytes
    version: int
    record: bytes
    revisions: int
    files: dict[str, int]
    """The sizes of the files by their names."""
    built: float = 0.0
    """The time at which the generation was built, in seconds since the epoch. `took`: the seconds that building
    took."""
    took: float = 0.0
    left: tuple[bytes, ...] = ()
    """Tips that refs had at the build or later, and no longer have. They may be unreachable now."""
    mapped: int = 0
    """The number of stored revisions when the bitmaps were written."""

    @property
    def packs(self) -> int:
        """The number of packs."""
        return sum(name.endswith(".pack") for name in self.files)

    @property
    def wants_join(self) -> bool:
        """True if packs should be joined or bitmaps written. With bitmaps, a clone costs the server a third of the
        work."""
        return self.packs > MAX_PACKS or self.revisions > max(FEW_REVISIONS, 2 * self.mapped)


class Lease:
    """A lease of a generation, which is not deleted while the lease is open or a process has its descriptor."""

    def __init__(self, folder: str, descriptor: int) -> None:
        self.folder = folder
        self.descriptor = descriptor

    def close(self) -> None:
        """Release the lease."""
        os.close(self.descriptor)


class GitCache:
    """The git cache of one repository. All methods block. It may be used by several threads and processes at once."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._decoder = msgspec.msgpack.Decoder(Current)

    # -- what requests use

    def lease(self, state: StoreState | None = None) -> Lease | None:
        """Lease the current generation. Return None if there is no generation, or it is damaged or not at `state`."""
        for _ in range(3):  # It may be replaced meanwhile.
            current = self._current()
            if current is None or (state is not None and current.record != state.record):
                return None
            folder = self._at(current.generation)
            with contextlib.suppress(OSError):
                descriptor = os.open(os.path.join(folder, _LEASE), os.O_RDONLY | os.O_CLOEXEC)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    if os.fstat(descriptor).st_nlink and self._is_whole(current):
                        os.utime(self._at("current"))
                        return Lease(folder, descriptor)
                except BaseException:
                    os.close(descriptor)
                    raise
                os.close(descriptor)
        return None

    def bring(self, now: Now, pull: Pull) -> bool:
        """Update the cache to the newest state. Return True if `tidy` has work to do.

        The state is read here, under the lock. With a state that was read before, an update by another process would
        look like a log that went back, and the whole cache would be built again.

        Raises:
            CodedError: the store could not be read.
            VcsError, OSError: git or the disk failed.
        """
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        with self._locked():
            state = now()
            current = self._current()
            if current is not None and not (self._continues(current, state) and self._is_whole(current)):
                current = None
            if current is not None and current.record == state.record:
                return False
            if current is not None:
                try:
                    current = self._extend(current, state, pull)
                except (VcsError, FileNotFoundError) as error:
                    log.warning("the cache %s is built again: %s", self.folder, error)
                    current = None
            if current is None:
                current = self._build(state, pull)
            return bool(current.left) or current.wants_join

    def tidy(self, now: Now, pull: Pull) -> None:
        """Join packs, and build a new generation if refs no longer reach all objects.

        Raises:
            CodedError, VcsError, OSError: as `bring`.
        """
        with self._locked():
            current = self._current()
            if current is None:
                return
            with open_bare(self._at(current.generation), current.vcs, git_programs.environment()) as repository:
                if current.left and _reaches_all(repository, current.left):
                    current = msgspec.structs.replace(current, left=())
                    self._write(current)
                due = current.took < QUICK_BUILD or time.time() - current.built > SLOW_BUILD_EVERY
                if not current.left and current.wants_join:
                    # The store's deltas are longer than git's, so git makes its own once for each new generation. That
                    # costs three times as much as the build. It saves each clone a quarter of its bytes, and its client
                    # a tenth of the work.
                    makes_deltas = not current.mapped and current.took < QUICK_BUILD
                    which = ["-a", "-f"] if makes_deltas else ["--geometric=2"]
                    options = ["-d", "-q", "--write-midx", "--write-bitmap-index"]
                    command = ["--git-dir", repository.git_dir, "repack", *which, *options]
                    status, said = git_programs.run(command, git_programs.environment(), nice=True)
                    if status:
                        raise failure("repack", status, said)
                    files = self._files(current.generation)
                    self._write(msgspec.structs.replace(current, files=files, mapped=current.revisions))
            if current.left and due:
                self._build(now(), pull)

    def check(self) -> None:
        """Check the cache with `git fsck`. If it is damaged, the next request builds it again."""
        lease = self.lease()
        if lease is None:
            return
        try:
            status, said = git_programs.run(
                ["--git-dir", lease.folder, "fsck", "--no-dangling", "--no-progress"],
                git_programs.environment(),
                nice=True,
            )
        finally:
            lease.close()
        if status:
            log.warning("the cache %s is damaged: %s", lease.folder, said.decode("utf-8", "replace").strip())
            with self._locked(), contextlib.suppress(FileNotFoundError):
                current = self._current()
                if current is not None and self._at(current.generation) == lease.folder:
                    os.unlink(self._at("current"))

    def use(self) -> tuple[float, int]:
        """Return the time of the cache's last use, in seconds since the epoch, and the bytes of its current
        generation."""
        current = self._current()
        if current is None:
            return 0.0, 0
        try:
            return os.stat(self._at("current")).st_mtime, sum(current.files.values())
        except FileNotFoundError:
            return 0.0, 0

    def remove(self) -> None:
        """Delete the cache, unless a process uses it."""
        with contextlib.suppress(FileNotFoundError), self._locked():
            self._remove_others("")
            current = self._current()
            if current is not None and not os.path.exists(self._at(current.generation)):
                os.unlink(self._at("current"))

    # -- generations

    def _build(self, state: StoreState, pull: Pull) -> Current:
        """Build a new generation that replaces all others."""
        began = time.monotonic()
        name = f"{secrets.token_hex(4)}.git"
        with open_bare(self._at(name), state.vcs, git_programs.environment()):
            pass
        with open(os.path.join(self._at(name), _LEASE), "xb"):
            pass
        made = Current(name, state.vcs, state.incarnation, 0, b"", 0, {})
        return self._extend(made, state, pull, built=time.time(), began=began)

    def _extend(
        self, current: Current, state: StoreState, pull: Pull, built: float = 0.0, began: float = 0.0
    ) -> Current:
        """Add the objects that a generation lacks, and set the generation's refs. `built`, `began`: the wall time and
        the monotonic time at which the build of a new generation began."""
        folder = self._at(current.generation)
        keeps: list[str] = []
        with open_bare(folder, current.vcs, git_programs.environment()) as repository:
            old = repository.refs()
            refs = state.refs()
            tips = {name: value[0] for name, value in refs.items()}
            have = set(old.values())
            new = list(dict.fromkeys(tip.id for tip in tips.values() if tip.id not in have))
            if new and old:
                here = {key for key, _ in repository.existing([key.hex().encode() for key in new])}
                new = [key for key in new if key not in here]
            try:
                if new:
                    # The tips that moved tell most about the objects that are here.
                    moved = [key for name, key in old.items() if name not in tips or tips[name].id != key]
                    haves = list(dict.fromkeys([*moved, *old.values()]))[:MAX_HAVES]
                    pulled = pull(state, haves, new if len(new) <= MAX_IDS else None)
                    segments = segments_of(
                        Arrival(pulled.body, pulled.result.segments), repository.kinds, lambda size, done, total: None
                    )
                    Inserter(repository, keeps, as_pack=True).insert(segments)
                _write_refs(folder, state, {name: (tip.id, tip.attributes) for name, tip in tips.items()})
            finally:
                for keep in keeps:  # A pack with a .keep file is never joined.
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(keep)
        now = {tip.id for tip in tips.values()}
        left = () if built else tuple(dict.fromkeys([*current.left, *(key for key in old.values() if key not in now)]))
        made = Current(
            generation=current.generation,
            vcs=state.vcs,
            incarnation=state.incarnation,
            version=state.version,
            record=state.record,
            revisions=state.revisions,
            files=self._files(current.generation),
            built=built or current.built,
            took=time.monotonic() - began if built else current.took,
            left=left,
            mapped=current.mapped,
        )
        self._write(made)
        self._remove_others(made.generation)  # One that was in use before may be free now.
        return made

    def _continues(self, current: Current, state: StoreState) -> bool:
        """Return True if the store still has all revisions of a generation. A removal of revisions gives the repository
        a new incarnation."""
        same = (current.vcs, current.incarnation) == (state.vcs, state.incarnation)
        return same and state.version >= current.version

    def _remove_others(self, name: str) -> None:
        """Delete all generations except `name` and those that a process uses."""
        for each in os.listdir(self.folder):
            if not each.endswith(".git") or each == name:
                continue
            folder = self._at(each)
            try:
                lease = os.open(os.path.join(folder, _LEASE), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # It was never finished.
                shutil.rmtree(folder, ignore_errors=True)
                continue
            try:
                fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(os.path.join(folder, _LEASE))
                shutil.rmtree(folder, ignore_errors=True)
            except BlockingIOError:
                pass
            finally:
                os.close(lease)

    # -- files

    def _at(self, name: str) -> str:
        return os.path.join(self.folder, name)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock for changes of the cache."""
        descriptor = os.open(self._at("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _current(self) -> Current | None:
        try:
            with open(self._at("current"), "rb") as file:
                return self._decoder.decode(file.read())
        except (OSError, msgspec.DecodeError):
            return None

    def _write(self, current: Current) -> None:
        with new_file(self._at("current")) as file:
            file.write(msgspec.msgpack.encode(current))

    def _files(self, generation: str) -> dict[str, int]:
        """Return the sizes of a generation's essential files, by their names."""
        folder = self._at(generation)
        packs = [f"objects/pack/{name}" for name in os.listdir(os.path.join(folder, "objects", "pack"))]
        names = [*_OF_ALL, *(name for name in packs if name.endswith((".pack", ".idx")))]
        return {name: os.stat(os.path.join(folder, name)).st_size for name in names}

    def _is_whole(self, current: Current) -> bool:
        """Return True if all files exist and have their recorded sizes."""
        folder = self._at(current.generation)
        try:
            return all(os.stat(os.path.join(folder, name)).st_size == size for name, size in current.files.items())
        except OSError:
            return False


def _reaches_all(repository: GitRepository, left: Sequence[bytes]) -> bool:
    """Return True if refs still reach all objects of `left`."""
    lines = b"".join(key.hex().encode() + b"\n" for key in left)
    return not repository.run("rev-list", "--objects", "--max-count=1", "--stdin", "--not", "--all", stdin=lines)


def _write_refs(folder: str, state: StoreState, refs: Mapping[bytes, tuple[RevisionId, bytes]]) -> None:
    """Replace all refs and HEAD. `refs`: for each ref its tip and, if that is an annotated tag, the object that it
    peels to, else an empty id."""
    # The header omits `peeled`: it is unknown for tags that an earlier release stored, so git must look itself.
    lines = [b"# pack-refs with: sorted \n"]
    for name in sorted(refs):
        tip, peeled = refs[name]
        lines.append(b"%b %b\n" % (tip.hex().encode(), name))
        if peeled:
            lines.append(b"^%b\n" % peeled.hex().encode())
    with new_file(os.path.join(folder, "packed-refs")) as file:
        file.writelines(lines)
    head = state.head if state.head.startswith(HEADS) else HEADS + b"main"
    with new_file(os.path.join(folder, HEAD)) as file:
        file.write(b"ref: %b\n" % head)
