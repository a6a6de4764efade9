"""A bare git repository with the content of a repository of the store, so that git's own `upload-pack` can serve it.

It is a cache: the store alone decides what there is, and all of a cache can be deleted at any time. It lies in a folder
of its own:

    lock            flocked by the one process that changes the cache
    current         which generation is in use, the record of the log that it is at, and the sizes of its files; the
                    time of its modification is that of the last use
    XXXXXXXX.git/   a generation: a bare repository whose refs are all in `packed-refs`, and its file `lease`

An update pulls what the cache lacks, puts that into a pack, replaces `packed-refs`, then `current`. A crash between two
of these steps leaves more objects than the refs need, and the next update does the rest.

Objects are only ever added to a generation. Git's protocol lets a client fetch whatever object is there by its id. So
no object comes here that no ref of the store reached. A cache whose refs leave objects behind gets a new generation, as
does one that is damaged, or whose repository was recreated or had something removed. A process that serves a generation
holds a shared flock on its `lease` to its end, and a generation is deleted only under an exclusive one: what a running
`upload-pack` may name stays.
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
"""Packs from which they are joined: each costs every request of a client a look."""

FEW_REVISIONS: Final = 500
"""Revisions without which bitmaps pay for nothing."""

MAX_IDS: Final = 60_000
"""Revisions that one pull asks for by their ids (`verbs.repository_pull`); of more all refs are asked for."""

QUICK_BUILD: Final = 10.0
"""Seconds that a generation may take to build, to be built again as soon as refs left objects behind."""

SLOW_BUILD_EVERY: Final = 3600.0
"""Seconds between two generations for that reason where one takes longer."""

_LEASE: Final = "lease"
_OF_ALL: Final = ("HEAD", "config", "packed-refs")
"""Files of a generation besides its packs."""


class StoreState(msgspec.Struct, frozen=True):
    """A state of a repository of the store, to which a cache is brought."""

    vcs: str
    incarnation: bytes
    version: int
    record: bytes
    """The hash of that record of the log."""
    mark: int
    revisions: int
    """The number of stored revisions."""
    refs: Callable[[], Mapping[bytes, RefValue]]
    head: bytes


Now = Callable[[], StoreState]
"""Reads the newest state from the store."""

Pull = Callable[[StoreState, Sequence[RevisionId], Sequence[RevisionId] | None], "PullAnswer"]
"""Pulls from the store, by a state, haves and wants; without wants all that refs reach."""


class Current(msgspec.Struct, frozen=True):
    """The file `current`."""

    generation: str
    vcs: str
    incarnation: bytes
    version: int
    record: bytes
    revisions: int
    files: dict[str, int]
    """Sizes, by the names of files."""
    built: float = 0.0
    """The time at which the generation was built, in seconds since the epoch; `took`: the seconds that it took."""
    took: float = 0.0
    left: tuple[bytes, ...] = ()
    """Tips that refs left since then, which may be reached by no other."""
    mapped: int = 0
    """Revisions that were stored when its bitmaps were written."""

    @property
    def packs(self) -> int:
        """The number of its packs."""
        return sum(name.endswith(".pack") for name in self.files)

    @property
    def wants_join(self) -> bool:
        """True if packs are to be joined, or bitmaps to be written: with these a clone costs its server a third."""
        return self.packs > MAX_PACKS or self.revisions > max(FEW_REVISIONS, 2 * self.mapped)


class Lease:
    """A generation that stays for as long as this is open, or a process has its descriptor."""

    def __init__(self, folder: str, descriptor: int) -> None:
        self.folder = folder
        self.descriptor = descriptor

    def close(self) -> None:
        """Release it."""
        os.close(self.descriptor)


class GitCache:
    """The cache of one repository; everything here blocks. Usable from several threads and processes."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._decoder = msgspec.msgpack.Decoder(Current)

    # -- what requests use

    def lease(self, state: StoreState | None = None) -> Lease | None:
        """The generation in use; None where there is none, or it is damaged or not at that state."""
        for _ in range(3):  # Another may be put in its place meanwhile.
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
        """Bring the cache to the newest state. True if `tidy` has something to do.

        The state is read here, alone: with one that was read before, an update by another process would look like a
        log that went back, and the whole cache would be built again.

        Raises:
            CodedError: the store refused to be read.
            VcsError, OSError: git, or the disk, refused.
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
        """Join packs, and leave behind what no ref reaches any more.

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
                    # The store's deltas are longer than git's: of a new generation git makes its own, once. That costs
                    # three times as much as the build, and saves each clone a quarter of its bytes and a tenth of its
                    # client's work.
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
        """Have the next request build the cache again where it is damaged; it takes as long as that."""
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
        """The time at which it was last used, in seconds since the epoch, and the bytes of its generation in use."""
        current = self._current()
        if current is None:
            return 0.0, 0
        try:
            return os.stat(self._at("current")).st_mtime, sum(current.files.values())
        except FileNotFoundError:
            return 0.0, 0

    def remove(self) -> None:
        """Delete it, unless a process serves it."""
        with contextlib.suppress(FileNotFoundError), self._locked():
            self._remove_others("")
            current = self._current()
            if current is not None and not os.path.exists(self._at(current.generation)):
                os.unlink(self._at("current"))

    # -- generations

    def _build(self, state: StoreState, pull: Pull) -> Current:
        """A new generation, in place of all others."""
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
        """Add what a generation lacks, and set its refs. `built`, `began`: of a new one."""
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
                    # The tips that moved say most of what is here.
                    moved = [key for name, key in old.items() if name not in tips or tips[name].id != key]
                    haves = list(dict.fromkeys([*moved, *old.values()]))[:MAX_HAVES]
                    pulled = pull(state, haves, new if len(new) <= MAX_IDS else None)
                    segments = segments_of(
                        Arrival(pulled.body, pulled.result.segments), repository.kinds, lambda size, done, total: None
                    )
                    Inserter(repository, keeps, as_pack=True).insert(segments)
                _write_refs(folder, state, {name: (tip.id, tip.attributes) for name, tip in tips.items()})
            finally:
                for keep in keeps:  # A pack with such a file is never joined with others.
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
        self._remove_others(made.generation)  # One that was served at the last update may not be now.
        return made

    def _continues(self, current: Current, state: StoreState) -> bool:
        """True if the store has all that a generation was made of. A removal gives the repository a new incarnation."""
        same = (current.vcs, current.incarnation) == (state.vcs, state.incarnation)
        return same and state.version >= current.version

    def _remove_others(self, name: str) -> None:
        """Delete all generations but one, as far as no process serves them."""
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
        """Alone among those that change the cache."""
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
        """The files of a generation that a cache is damaged without."""
        folder = self._at(generation)
        packs = [f"objects/pack/{name}" for name in os.listdir(os.path.join(folder, "objects", "pack"))]
        names = [*_OF_ALL, *(name for name in packs if name.endswith((".pack", ".idx")))]
        return {name: os.stat(os.path.join(folder, name)).st_size for name in names}

    def _is_whole(self, current: Current) -> bool:
        """True if its files are there, with their sizes."""
        folder = self._at(current.generation)
        try:
            return all(os.stat(os.path.join(folder, name)).st_size == size for name, size in current.files.items())
        except OSError:
            return False


def _reaches_all(repository: GitRepository, left: Sequence[bytes]) -> bool:
    """True if refs reach all of these still."""
    lines = b"".join(key.hex().encode() + b"\n" for key in left)
    return not repository.run("rev-list", "--objects", "--max-count=1", "--stdin", "--not", "--all", stdin=lines)


def _write_refs(folder: str, state: StoreState, refs: Mapping[bytes, tuple[RevisionId, bytes]]) -> None:
    """Replace all refs by these, each with what its tag peels to, and HEAD."""
    # Not `peeled`: of a tag that an earlier release stored nobody knows, and git looks itself.
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
