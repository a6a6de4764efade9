"""A site: the repositories below the root that a server process serves, by path, and the rules for all of them."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import smartserver
from smartserver.errors import AccessDenied, IncompleteRepository, InvalidPath, LimitExceeded, NestedRepository
from smartserver.records.faults import SAFE, Policy
from smartserver.server import jail
from smartserver.server.hooks import Hooks
from smartserver.server.jailed import FORMAT_BYTES, JailedTransport
from smartserver.server.open_files import MAX_OF_SITE, OpenFiles
from smartserver.server.request_log import EndedRequest
from smartserver.server.sizes import NO_LIMITS, SizeLimits
from smartserver.server.upkeep import UpkeepQueue
from smartserver.store.caches import TextCache
from smartserver.store.creation import holds_repository
from smartserver.store.format import CLUSTER, FORMAT, NAMES, foreign_in, is_marked, is_ours
from smartserver.store.log_view import Head, Perform, first_reads
from smartserver.store.model import ListingEntry
from smartserver.store.repository import PackRepository
from smartserver.verbs.all import every_verb
from smartserver.verbs.declare import Calls, ServerFacts
from transports.base import Capability, EntryKind, Transport
from transports.decorators.ahead import AheadTransport, Read
from transports.decorators.counted import CountedTransport
from transports.errors import CodedError, TransportError
from transports.steps import GetPublished, GetStat, ListDirectory

MAX_OPEN = 256
"""The most repositories that are kept open. Each has at most about 20 packs with two descriptors each (the pack and its
index): some 10,000 in all, and `serve` asks for 65,536."""

NO_CREATE = "this server allows no new repositories (`serve --no-create`)"
"""The reason that a refusal gives if no user may create a repository."""

FAR_LEVEL = 3
"""The level of zstd for clients on other machines. It compresses 250 MB of text a second, so that its output fills a
link of 1 Gbit/s."""

MAX_FOLDERS = 100_000
"""The most folders that a listing reads, in about a second."""

FEW = 16
"""The most folders of a level in which `read_ahead` also reads logs, although the folders may have none. It takes some
40 reads in each folder."""

MayRead = Callable[[str], bool]
"""A function that returns True if the user of a request may know of the repository at a path."""


def everything(path: str) -> bool:
    """Return True. This is the test for users who may read everything."""
    return True


@dataclass(frozen=True, slots=True)
class RepositoryLocation:
    """A repository, or a place where one may be created."""

    repository: PackRepository
    exists: bool
    look: Head | None = field(default=None, compare=False)
    """The state that was read; None if the repository's log was not read."""

    @property
    def at(self) -> str:
        """The path of the repository; empty if the repository does not exist yet."""
        return self.repository.path if self.exists else ""


def _order(path: str) -> list[str]:
    """Return the sort key of a path in a listing: the content of a folder comes before the folder's siblings."""
    return path.split("/") if path else []


def _is_behind(path: str, after: str) -> bool:
    """Return True if `path` comes after `after` in the order of a listing, or if `after` is empty."""
    return not after or _order(path) > _order(after)


def _below(place: str, name: str) -> str:
    return f"{place}/{name}".strip("/")


def folders_below(folder: str, names: Sequence[str]) -> list[str]:
    """Return the paths of the entries of a folder that may be folders with repositories, in reverse order."""
    if "HEAD" in names and "objects" in names:
        return []  # Another tool's repository (`store.format`): many folders, none of ours.
    return [_below(folder, name) for name in sorted(names, reverse=True) if jail.is_name(name)]


def _first_reads(root: Transport, folder: str) -> list[Read]:
    """Return the reads with which a repository in a folder is opened. The read of `format` is the first."""
    return [read.below(folder) for read in first_reads(root)]


def read_ahead(root: AheadTransport) -> None:
    """Read ahead for `Site.listing` in a remote store. One round trip reads all folders of a level, and the logs of the
    repositories one level above. If the folders are few and their reads cost no money, it also reads their own logs."""
    level, found, looked = [""], list[str](), 0
    while level or found:
        looked += len(level)
        is_few = len(level) <= FEW and Capability.OBJECTS not in root.capabilities
        folders: list[tuple[str, ListDirectory, list[Read]]] = [
            (each, ListDirectory(each), _first_reads(root, each)[: None if is_few else 1]) for each in level
        ]
        logs = [read for folder in found for read in _first_reads(root, folder)]
        root.read_ahead([*(read for _, names, reads in folders for read in (names, *reads)), *logs])
        level, found = [], []
        for folder, names, reads in folders:
            with contextlib.suppress(LookupError):  # It could not be read; the listing says why.
                if is_ours(cast("GetPublished", reads[0]).result or b""):
                    found += [] if is_few else [folder]
                else:
                    level += folders_below(folder, names.result or ())
        level = level[: MAX_FOLDERS - looked]


def _may_be_format(request: GetStat, *, unless_known: bool = False) -> bool:
    """Return True if, by the answer to `request`, a file may be the `format` of a repository. `unless_known`: the
    result if the request failed."""
    if not request.was_performed:
        return unless_known
    found = request.result
    if found is None or found.kind is EntryKind.OTHER:
        return False
    return found.kind is EntryKind.DIRECTORY or found.size <= FORMAT_BYTES


@functools.cache
def _facts(allows_vfs: bool) -> ServerFacts:
    verbs = [verb.name for verb in every_verb() if allows_vfs or not verb.is_vfs]
    return ServerFacts(smartserver.__version__, tuple(verbs))


@dataclass(slots=True)
class Site:
    """The served root, its open repositories, and the settings and caches that they share."""

    root: Transport
    may_create: bool = True
    inside: Callable[[str], bool] = lambda path: True
    """A function that returns True if a path, with links followed, is below the root."""
    name: str = "the folder this server serves"
    """The name of the root in messages."""
    tidies: bool = True
    """True if packs are joined after an answer. It is False for a remote store, because all packs would be transferred.
    Its packs are joined on request, and only the log is tidied after an answer."""
    allows_vfs: bool = False
    """True if the file-level verbs may be used, by users with the permission."""
    banned: Callable[[str, Calls], CodedError | None] = lambda path, calls: None
    """A function that returns the error with which calls on a path are refused for every user, or None."""
    sizes: Callable[[str], SizeLimits] = lambda path: NO_LIMITS
    """A function from the path of a repository to its size limits."""
    hooks: Hooks = field(default_factory=Hooks)
    """The hooks of the access file."""
    changed: Callable[[PackRepository], None] = lambda repository: None
    """A function that is called for each repository that a request changed, and at the server's start for every
    repository."""
    clock: Callable[[], float] = time.perf_counter
    """The clock that measures work, in seconds."""
    wall_clock: Callable[[], float] = time.time
    """The clock that dates changes, in seconds since the epoch."""
    policy: Policy = SAFE
    """The policy for faults of new records."""
    texts: TextCache = field(default_factory=TextCache)
    """The cache of texts, which all repositories share."""
    compression: int | None = None
    """The zstd level of bodies with content; 0 means no compression. None means `FAR_LEVEL` for clients on other
    machines, and 0 for local clients."""
    open_files: OpenFiles = field(default_factory=lambda: OpenFiles(MAX_OF_SITE))
    """The count of files that file-level verbs have opened for answers."""
    upkeep: UpkeepQueue = field(default_factory=UpkeepQueue)
    """The repositories that wait to be tidied."""
    ended: Callable[[EndedRequest], None] | None = None
    """A function that is called for each request that is over."""
    slow: float | None = None
    """Seconds of work and waiting from which a request is logged as slow. If the value is None, no request is logged as
    slow."""
    _counted: CountedTransport = field(init=False)
    _whole: Transport = field(init=False)
    """The whole store of which the root is a part. It is only read, to find a repository or store around a new
    repository."""
    _at: str = field(init=False)
    """The path of the root in the whole store."""
    _open: OrderedDict[str, PackRepository] = field(default_factory=OrderedDict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._counted = CountedTransport(self.root)
        self._whole, self._at = self.root.whole()

    def level_for(self, *, is_local: bool) -> int:
        """Return the level of zstd for a client. `is_local`: the client is on this machine."""
        return self.compression if self.compression is not None else 0 if is_local else FAR_LEVEL

    @property
    def facts(self) -> ServerFacts:
        """The facts about this server that are sent to clients."""
        return _facts(self.allows_vfs)

    def find(self, path: str) -> RepositoryLocation:
        """Return the repository at a path, or the place where one may be created.

        Raises:
            InvalidPath: the path cannot name a repository, or points outside the root.
            NestedRepository: the path is inside another repository.
        """
        name = self._inside(path, jail.clean(path))
        around = self._formats(jail.prefixes(name)[1:])
        outside = [
            GetStat(_below(place, file))
            for place in jail.prefixes(self._at)
            for file in (FORMAT, CLUSTER)
            if self._at and (place, file) != (self._at, FORMAT)
        ]
        asked = [*around, *outside]
        found = self._look(name, lambda steps: self._whole.perform([*(step.below(self._at) for step in steps), *asked]))
        if not found.exists:
            self._ask([each for each in asked if not each.was_performed])
            self._check_around(path, name, around, outside)
        return found

    def known(self, names: Sequence[str]) -> RepositoryLocation | None:
        """Return the first of these places that is an open repository of a remote store, in its last known state; None
        if none is."""
        with self._guard:
            repository = next((self._open[name] for name in names if name in self._open), None)
        look = None if repository is None else repository.known
        if repository is None or look is None or not look.state.exists:
            return None
        return RepositoryLocation(repository, True, look)

    def find_above(self, path: str, may_read: MayRead = everything) -> RepositoryLocation:
        """Return the longest prefix of a path that is a repository; if no prefix is, the path itself. Only places that
        the user may read are considered.

        Raises:
            InvalidPath: the path cannot name a repository, or points outside the root.
        """
        return self._first_above(path, jail.clean(path), may_read)

    def find_below(self, path: str, may_read: MayRead = everything) -> RepositoryLocation:
        """Return the same as `find_above`, for a path that may continue below the repository with a branch and a path
        in the branch.

        Raises:
            InvalidPath: the path leads to no repository and cannot name one, or leads out of the root.
        """
        return self._first_above(path, jail.place(path), may_read)

    def _first_above(self, path: str, place: str, may_read: MayRead) -> RepositoryLocation:
        names = [name for name in jail.prefixes(place) if may_read(name)]
        found = self._first(names) if names and self._inside(path, place) == place else None
        return found or RepositoryLocation(self._repository(jail.clean(path)), False)

    def files(self, path: str) -> JailedTransport:
        """Return the files at and below a path, for the file-level verbs.

        Raises:
            AccessDenied: the server does not allow these verbs.
            InvalidPath: the path cannot be that of a file.
        """
        if not self.allows_vfs:
            raise AccessDenied("use file-level (VFS) verbs", "the server runs without `--allow-vfs`")
        return JailedTransport(self._counted, path.strip("/"))

    def deleted_above(self, path: str, may_read: MayRead) -> list[PackRepository]:
        """Return the repositories that were deleted at prefixes of a path, longest first."""
        found = [self._repository(above) for above in jail.prefixes(jail.place(path)) if may_read(above)]
        return [repository for repository in found if repository.deleted()]

    def listing(
        self,
        path: str,
        after: str = "",
        most: int = sys.maxsize,
        go_on: Callable[[], None] = lambda: None,
        *,
        must_be: bool = False,
        may_read: MayRead = everything,
    ) -> list[ListingEntry]:
        """Return the repositories at or below a path, in the order of their paths. For a path in a repository, return
        only that repository.

        `after`: the listing begins after this path. `go_on`: is called for each folder; it may raise to end the
        listing. `must_be`: True if a missing folder at the path is an error. Repositories that the user may not read
        are left out.

        Raises:
            InvalidPath: the path cannot name a folder, or leads out of the root.
            LimitExceeded: there are too many folders.
            TransportError: the folder must exist, and cannot be listed.
        """
        above = self.find_above(path, may_read)
        if above.exists:
            return [self._listed(above.at)] if _is_behind(above.at, after) else []
        found: list[ListingEntry] = []
        looked = 0
        folders = [jail.clean(path)]
        while folders and len(found) < most:
            go_on()
            folder = folders.pop()
            looked += 1
            if looked > MAX_FOLDERS:
                raise LimitExceeded("folders to look into for repositories", looked, MAX_FOLDERS)
            try:
                names = self._counted.list_directory(folder) if must_be and looked == 1 else self._names(folder)
            except InvalidPath as error:  # A store with a jail of its own may raise it.
                if _is_behind(folder, after) and may_read(folder):
                    found.append(ListingEntry(folder, "", (), error.why))
                continue
            if FORMAT in names:
                listed = self._listed(folder, with_refs=may_read(folder))
                is_marked = listed.vcs != "" or self._is_marked(folder)
                if is_marked and (listed.vcs or listed.problem):
                    if may_read(folder) and _is_behind(folder, after):
                        found.append(listed)
                    continue  # A repository contains no other; a deleted one may.
                if is_marked:
                    names = [name for name in names if name not in NAMES]
            if folder and CLUSTER in names:  # Its logs are elsewhere: each repository would seem damaged.
                if _is_behind(folder, after) and may_read(folder):
                    found.append(ListingEntry(folder, "", (), f"{foreign_in(names)}: list that by itself"))
                continue
            below = folders_below(folder, names)
            folders += [each for each in below if not _order(each) < _order(after)[: each.count("/") + 1]]
        return found

    def _listed(self, path: str, *, with_refs: bool = True) -> ListingEntry:
        """Return the entry of a repository. The entry has neither a VCS nor a problem if the repository was deleted
        meanwhile."""
        try:
            found = self._look(path)
            state = None if found.look is None else found.look.live
            if state is None:
                return ListingEntry(path, "", ())
            if state.is_incomplete:
                return ListingEntry(path, state.vcs, (), str(IncompleteRepository(path or ".")))
            return ListingEntry(path, state.vcs, tuple(state.refs()) if with_refs else ())
        except CodedError as error:
            return ListingEntry(path, "", (), str(error))

    def _names(self, folder: str) -> Sequence[str]:
        """Return the names in a folder; none if it is a file, may not be read, or is outside the root."""
        try:
            return self._counted.list_directory(folder) if self.inside(folder) else ()
        except TransportError:
            return ()

    def _inside(self, path: str, name: str) -> str:
        if not self.inside(name):
            raise InvalidPath(path, "it leads out of the served folder")
        return name

    def _check_around(self, path: str, name: str, around: Sequence[GetStat], outside: Sequence[GetStat]) -> None:
        """Refuse to create a repository inside another one, which may also contain the root. Also refuse a place in a
        store whose logs are in a database that this server does not use. (A transport that uses the database has no
        folder above it.) `around`, `outside`: the requests for files in the folders above the place, and in those above
        the root."""
        found = self._first(jail.prefixes(name)[1:], around)
        if found is not None:
            raise NestedRepository(path, found.at)
        for request in outside:
            place, _, file = request.path.rpartition("/")
            if file == CLUSTER and request.was_performed and request.result is not None:
                why = "has its logs in a database, which cannot be reached from here: use one of its servers"
                raise InvalidPath(path, f"{self._whole.describe(place)} {why}")
            with contextlib.suppress(TransportError):  # A folder that cannot be read does not count.
                if file == FORMAT and _may_be_format(request) and holds_repository(self._whole, place):
                    raise InvalidPath(path, f"{self._whole.describe(place)} is a repository: name a place outside it")

    def _formats(self, names: Sequence[str]) -> list[GetStat]:
        """Return requests to the whole store for the `format` files of places."""
        return [GetStat(_below(_below(self._at, name), FORMAT)) for name in names]

    def _ask(self, formats: Sequence[GetStat]) -> None:
        """Perform requests, and ignore a failure: a failed request for a farther place does not matter if a nearer
        place is a repository."""
        with contextlib.suppress(TransportError):
            self._whole.perform(formats)

    def _first(self, names: Sequence[str], asked: Sequence[GetStat] | None = None) -> RepositoryLocation | None:
        """Return the first of these places that is a repository, or None. `asked`: the performed requests for their
        formats."""
        with self._guard:
            known = next((at for at, name in enumerate(names) if name in self._open), len(names))
        formats = asked
        if formats is None:
            # Mostly no place before an open one is a repository. One request asks for all, for a store behind a link.
            formats = self._formats(names[:known])
            self._ask(formats)
        asked_of = zip(names[:known], formats, strict=False)
        likely = [name for name, each in asked_of if _may_be_format(each, unless_known=True)]
        for name in (*likely, *names[known:]):
            try:
                found = self._look(name)
            except CodedError:
                if self._is_marked(name):
                    raise
                continue  # A file of the user happens to have that name.
            if found.exists:
                return found
        return None

    def _is_marked(self, name: str) -> bool:
        """Return True if a folder's `format` is that of a repository, or cannot be read."""
        try:
            return is_marked(self._counted.child(name) if name else self._counted)
        except TransportError:
            return True

    def _look(self, name: str, perform: Perform | None = None) -> RepositoryLocation:
        """Return the repository at a place, which is kept open, or the place where one may be created. `perform`: as
        for `PackRepository.look_around`."""
        repository = self._repository(name)
        look = repository.look() if perform is None else repository.look_around(perform)
        if not look.state.exists:
            return RepositoryLocation(repository, False, look)
        with self._guard:
            repository = self._open.setdefault(name, repository)
            self._open.move_to_end(name)
            while len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)
            return RepositoryLocation(repository, True, look)

    def _repository(self, name: str) -> PackRepository:
        """Return the open repository at a path, else a new object that has read nothing yet."""
        with self._guard:
            repository = self._open.get(name)
        return repository or PackRepository(
            self._counted,
            name,
            clock=self.wall_clock,
            texts=self.texts,
            policy=self.policy,
        )
