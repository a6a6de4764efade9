"""`Gateway`: the repositories of a site, for stock git. Everything here blocks.

A fetch is git's own `upload-pack` on a cache of the store; the user's rights are checked before. A push becomes a
request of hpss in this process, so that it has the same rules, checks and logs as any other push.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import math
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Raw

from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.repository import RemoteRepository
from smartserver.errors import AccessDenied, IncompleteRepository, NestedRepository, NoSuchRepository
from smartserver.gateway.cache import GitCache, Lease, Now, Pull, StoreState
from smartserver.records.model import RevisionId
from smartserver.server import jail
from smartserver.server.access import Access, Admission, invoking_user
from smartserver.server.executor import NOBODY, Executor, Lane, T
from smartserver.server.fair import Tenant
from smartserver.server.same_process import SameProcess
from smartserver.server.site import NO_CREATE, Site
from smartserver.vcs.base import VcsError
from smartserver.vcs.git.names import HEAD
from smartserver.vcs.git.system import GIT
from smartserver.verbs.declare import Permission
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.wire.messages import State
from transports.errors import CodedError

if TYPE_CHECKING:
    from smartserver.client.exchange import PullAnswer

log = logging.getLogger("smartserver")

CLIENTS: Final = {"hg": ("Mercurial", "hg clone"), "bzr": ("Breezy", "brz branch")}
"""The other systems: the name of each for users, and the command that clones a repository of it."""

NEW_VCS: Final = "git sha1"
"""The system of a repository that a push creates: git sends its format only after it has seen the server's."""

QUARANTINE: Final = "quarantine"
"""The folder for the objects of pushes, next to the caches."""

CHECK_PAUSE: Final = 20
"""The pause after a check of a cache, as a multiple of the check's duration. So checks take at most a twentieth of a
processor."""


class OtherSystem(Exception):
    """A repository that git cannot read; the message names the client that can, on one line."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """A client of stock git over HTTPS or SSH. The object is the admission of the requests that the gateway makes for
    the client."""

    admission: Admission
    extras: dict[str, Raw]
    """The extra fields of the client's requests: its token."""
    peer: str
    via: str

    def admit(self, extras: object = None) -> Access:
        """Return the current rights of the user.

        Raises:
            AccessDenied: the token or the key of the client is not valid.
        """
        return self.admission.admit(self.extras)


class _RequestsHere:
    """Runs a request in the thread that waits for it, and upkeep in the executor of the server."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    @property
    def stopping(self) -> bool:
        """True if the server's executor begins no more work."""
        return self._executor.stopping

    def run(
        self, work: Callable[[], T], done: Callable[[T], None], lane: Lane = Lane.QUICK, client: Tenant = NOBODY
    ) -> None:
        """Call `work` and `done` at once. Pass upkeep to the server's executor."""
        if lane is Lane.UPKEEP:
            self._executor.run(work, lambda _: None, lane, client)
        else:
            done(work())

    def soon(self, call: Callable[[], None]) -> None:
        """Call `call` at once."""
        call()


class Gateway:
    """The repositories of a site, for clients of stock git."""

    def __init__(
        self,
        site: Site,
        folder: str,
        executor: Executor,
        later: Callable[[Callable[[], None]], object] = lambda call: call(),
        cache_size: int | None = None,
    ) -> None:
        """`folder`: the folder of the caches. `executor`: runs the work after an answer. `later`: schedules a call that
        queues such work; any thread may call it. `cache_size`: the most bytes of all caches together; None means no
        limit."""
        self.site = site
        self.folder = folder
        self._cache_size = cache_size
        self.executor = executor
        self._later = later
        self._inline = _RequestsHere(executor)
        self._guard = threading.Lock()
        self._next_check: dict[str, float] = {}
        """The time before which a cache is not checked again, by the path of its repository."""

    # -- what there is

    def state(self, visitor: Visitor, path: str) -> StoreState:
        """Return the current state of a git repository that the user may read.

        Raises:
            AccessDenied: the user lacks the permission to read it. The repository was not looked up.
            CodedError: the repository is missing or cannot be read.
            OtherSystem: the repository belongs to another system than git.
        """
        found = self._state(visitor, path)
        if found is None:
            raise NoSuchRepository(path)
        return found

    def state_to_push(self, visitor: Visitor, path: str) -> StoreState | None:
        """Return the current state for a user who may push. Return None if the repository is missing and the user may
        create it.

        Raises:
            AccessDenied, CodedError, OtherSystem: as `state`.
        """
        access, name = visitor.admit(), jail.clean(path)
        found = self._state(visitor, path)
        if found is None:
            if not self.site.may_create:
                raise AccessDenied("create the repository", NO_CREATE, name)
            access.require(Permission.CREATE, name)
        else:
            access.require(Permission.WRITE, name)
        return found

    def may_push(self, visitor: Visitor, path: str) -> None:
        """Check the right to push to a path, before the store is read.

        Raises:
            AccessDenied: the user may not change anything at that path.
            InvalidPath: no repository can have that path.
        """
        access, name = visitor.admit(), jail.clean(path)
        access.require(Permission.READ, name)
        if access.objection(Permission.CREATE, name):
            access.require(Permission.WRITE, name)

    def may_fetch(self, visitor: Visitor, path: str) -> None:
        """Check the right to fetch from a path, before the store is read.

        Raises:
            AccessDenied: the user may not read that path.
            InvalidPath: no repository can have that path.
        """
        visitor.admit().require(Permission.READ, jail.clean(path))
        banned = self.site.banned(path, [(repository_pull, PullRequest())])
        if banned is not None:
            raise banned

    def _state(self, visitor: Visitor, path: str) -> StoreState | None:
        name = jail.clean(path)
        access = visitor.admit()
        access.require(Permission.READ, name)
        try:
            return self._stored(path)
        except NestedRepository as error:
            if access.may(Permission.READ, error.inside):
                raise
            raise AccessDenied(
                "create the repository", "it would be inside a repository that you may not read: choose another path"
            ) from None

    def _now(self, path: str) -> StoreState:
        """Return the newest state, for a cache.

        Raises:
            CodedError, OtherSystem: as `state`.
        """
        found = self._stored(path)
        if found is None:
            raise NoSuchRepository(path)
        return found

    def _stored(self, path: str) -> StoreState | None:
        found = self.site.find(path)
        state = None if found.look is None else found.look.live
        if state is None:
            return None
        if state.is_incomplete:
            raise IncompleteRepository(path)
        if state.vcs not in GIT:
            known = state.vcs.partition(" ")[0]
            system, command = CLIENTS.get(known, (known, "smartserver list"))
            name = jail.clean(path)
            raise OtherSystem(f"{name!r} is a {system} repository, which git cannot read: {command} hpss://HOST/{name}")
        return StoreState(
            vcs=state.vcs,
            incarnation=state.incarnation,
            version=state.version,
            record=state.hash,
            mark=state.mark,
            revisions=sum(pack.segments for pack in state.packs),
            refs=state.refs,
            head=state.settings.get(HEAD, b""),
        )

    def words(self, error: Exception) -> str:
        """Return the message of an error for a client: one line that does not contain the folder of the caches. An
        OSError is also logged."""
        if isinstance(error, OSError):
            log.warning("a request of stock git failed: %s", error)
            return f"the server failed: {error.strerror or type(error).__name__}"
        return "".join(each if each.isprintable() else "?" for each in str(error).replace(self.folder, "CACHE"))

    # -- caches

    def lease(self, path: str, state: StoreState | None) -> Lease | None:
        """Lease the cache of a repository if the cache is at `state`. Without `state`, any state is accepted."""
        return self._cache(path).lease(state)

    def bring(self, path: str) -> Lease:
        """Update the cache of a repository to the newest state, and lease it. The caller has checked that the user may
        read it.

        Raises:
            CodedError, OtherSystem: the store cannot be read, or has no git repository there now.
            VcsError, OSError: git or the disk failed.
        """
        cache, now, pull = self._cache(path), partial(self._now, path), partial(self._pull, path)
        steps: list[Callable[[], None]] = []
        try:
            lease, needs_tidying = _bring_and_lease(cache, now, pull)
            if needs_tidying:
                steps.append(partial(cache.tidy, now, pull))
            return lease
        finally:
            if self._cache_size is not None:  # Also after a failure: the disk may be full.
                steps.append(self._remove_least_used)
            if steps:
                self._later(lambda: self.executor.run(partial(_tidy, cache, steps), lambda _: None, Lane.LONG))

    def check(self, path: str) -> None:
        """Queue a check of the cache of a repository for damage. A client can cause a check with any invalid request.
        So the pause before the next check is `CHECK_PAUSE` times as long as the check."""
        with self._guard:
            if time.monotonic() < self._next_check.get(path, 0.0):
                return
            self._next_check[path] = math.inf

        def work() -> None:
            began = time.monotonic()
            try:
                self._cache(path).check()
            finally:
                now = time.monotonic()
                self._next_check[path] = now + CHECK_PAUSE * (now - began)

        self.executor.run(work, lambda _: None, Lane.LONG)

    def _cache(self, path: str) -> GitCache:
        # Two stores may have copies of one repository, with different users.
        name = f"{self.site.root.describe()}\0{jail.clean(path)}"
        digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
        return GitCache(os.path.join(self.folder, digest))

    def _remove_least_used(self) -> None:
        """Remove the caches that were used least recently, until the rest have at most `cache_size` bytes. The cache
        that was used last is never removed."""
        if self._cache_size is None:
            return
        caches = [GitCache(each.path) for each in os.scandir(self.folder) if each.name != QUARANTINE]
        used = sorted(((*cache.use(), cache.folder) for cache in caches), reverse=True)
        left = self._cache_size
        for number, (_, size, folder) in enumerate(used):
            left -= size
            if number and size and left < 0:
                log.info("the cache %s is removed: all have more than %d bytes", folder, self._cache_size)
                GitCache(folder).remove()

    def _pull(
        self, path: str, state: StoreState, haves: Sequence[RevisionId], ids: Sequence[RevisionId] | None
    ) -> PullAnswer:
        client = Client(lambda: SameProcess(self.site, invoking_user("gateway"), "the gateway", "gateway"))
        remote = RemoteRepository(client, path, _knowledge(path, state))
        return remote.pull(haves, refs=None) if ids is None else remote.pull(haves, refs=[], ids=ids)

    # -- pushes

    def remote(self, visitor: Visitor, path: str, state: StoreState | None) -> RemoteRepository:
        """Return the repository as our own client sees it, with the rights of the user."""
        client = Client(lambda: SameProcess(self.site, visitor, visitor.peer, visitor.via, self._inline))
        return RemoteRepository(client, path, _knowledge(path, state))

    @contextlib.contextmanager
    def quarantine(self) -> Iterator[str]:
        """Create a folder outside of all caches, for objects that the store has not accepted. The folder is deleted at
        the end."""
        above = os.path.join(self.folder, QUARANTINE)
        os.makedirs(above, mode=0o700, exist_ok=True)
        folder = os.path.join(above, secrets.token_hex(8))
        with _locked(above, fcntl.LOCK_SH):  # So that nobody takes the folder for a leftover.
            os.mkdir(folder, 0o700)
            lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)

    def clear_quarantine(self) -> None:
        """Delete the leftovers of pushes in processes that were killed."""
        above = os.path.join(self.folder, QUARANTINE)
        with contextlib.suppress(FileNotFoundError), _locked(above, fcntl.LOCK_EX):
            for name in os.listdir(above):
                folder = os.path.join(above, name)
                with contextlib.suppress(OSError), _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
                    shutil.rmtree(folder, ignore_errors=True)


def _bring_and_lease(cache: GitCache, now: Now, pull: Pull) -> tuple[Lease, bool]:
    """Update a cache to the newest state and lease it. The returned flag is True if `tidy` has work to do."""
    for _ in range(2):  # The cache may be deleted meanwhile.
        try:
            needs_tidying, lease = cache.bring(now, pull), cache.lease()
            if lease is not None:
                return lease, needs_tidying
            log.warning("the cache %s was deleted as it was built", cache.folder)
        except (FileNotFoundError, VcsError) as error:
            log.warning("building the cache %s: %s", cache.folder, error)
            if os.path.exists(cache.folder):
                break
    raise VcsError("the server could not build its cache of the repository; its log has the reason")


def _tidy(cache: GitCache, steps: Sequence[Callable[[], None]]) -> None:
    """Run all steps, even if one fails."""
    for step in steps:
        try:
            step()
        except (OtherSystem, CodedError, VcsError, OSError) as error:
            log.warning("tidying the cache %s: %s", cache.folder, error)


@contextlib.contextmanager
def _locked(folder: str, kind: int) -> Iterator[None]:
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, kind)
        yield
    finally:
        os.close(lock)


def _knowledge(path: str, state: StoreState | None) -> Knowledge:
    """Return knowledge of the repository at a state, in memory and without refs, so that no answer contains all
    refs."""
    known = Knowledge(None, path)
    if state is not None:
        known.learn(State(state.incarnation, state.version, None, {}, vcs=state.vcs, mark=state.mark))
    return known
