"""A site: the repositories below a root that one server process serves, found by path, and the rules for all of
them."""

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
from smartserver.store.format import CLUSTER, FORMAT, foreign_in, is_marked, is_ours
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
"""Repositories kept open. Each holds about 20 packs at most, with two descriptors each (the pack and its index): some
10,000, and `serve` asks for 65,536."""

NO_CREATE = "this server allows no new repositories (`serve --no-create`)"
"""The reason for which nobody may create a repository."""

FAR_LEVEL = 3
"""A level of zstd: 250 MB of text a second, as much as a link of 1 Gbit/s takes of the output."""

MAX_FOLDERS = 100_000
"""Folders one listing looks into: about a second's work."""

FEW = 16
"""Folders whose logs are asked for before it is known that there are any: some 40 questions for each."""

MayRead = Callable[[str], bool]
"""A test that is true if the user of a request may know of the repository at a path."""


def everything(path: str) -> bool:
    """The test for users who may read all."""
    return True


@dataclass(frozen=True, slots=True)
class RepositoryLocation:
    """A repository by path, or the place where one may be made."""

    repository: PackRepository
    exists: bool
    look: Head | None = field(default=None, compare=False)
    """The state that was seen; None where its log was not looked at."""

    @property
    def at(self) -> str:
        """Its own path; empty where there is none (yet)."""
        return self.repository.path if self.exists else ""


def _order(path: str) -> list[str]:
    """The key by which paths are listed: the content of a folder comes before its siblings."""
    return path.split("/") if path else []


def _is_behind(path: str, after: str) -> bool:
    """True if it comes later in a listing; all do where that is empty."""
    return not after or _order(path) > _order(after)


def _below(place: str, name: str) -> str:
    return f"{place}/{name}".strip("/")


def folders_below(folder: str, names: Sequence[str]) -> list[str]:
    """The paths of all that may be folders with repositories, the last one first, of the names that are in a folder."""
    if "HEAD" in names and "objects" in names:
        return []  # Another tool's repository (`store.format`): many folders, and none of ours.
    return [_below(folder, name) for name in sorted(names, reverse=True) if jail.is_name(name)]


def _first_reads(root: Transport, folder: str) -> list[Read]:
    """The first reads of a repository in a folder: the format before all else."""
    return [read.below(folder) for read in first_reads(root)]


def read_ahead(root: AheadTransport) -> None:
    """Read what `Site.listing` reads of a store behind a link: of all folders of a depth in one trip, together with the
    logs of the repositories one above, and with their own logs where they are few and cost nothing but time."""
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
            with contextlib.suppress(LookupError):  # It could not be read: the listing says why.
                if is_ours(cast("GetPublished", reads[0]).result or b""):
                    found += [] if is_few else [folder]
                else:
                    level += folders_below(folder, names.result or ())
        level = level[: MAX_FOLDERS - looked]


def _may_be_format(request: GetStat, *, unless_known: bool = False) -> bool:
    """True if it may be the `format` of a repository that was asked for; `unless_known`: the result where no answer
    came."""
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
    """The served root."""

    root: Transport
    may_create: bool = True
    inside: Callable[[str], bool] = lambda path: True
    """A test that is true if a path, links followed, is still below the root."""
    name: str = "the folder this server serves"
    """The name that messages give the root."""
    tidies: bool = True
    """True if packs are joined after an answer. They are not on a store behind a link, all of which would pass that:
    there it is done when it is asked for, and after an answer the log alone is tidied."""
    allows_vfs: bool = False
    """True if the file-level verbs may be used, by users with the permission."""
    banned: Callable[[str, Calls], CodedError | None] = lambda path, calls: None
    """Why these calls with that path are refused, whoever makes them; None: they are not."""
    sizes: Callable[[str], SizeLimits] = lambda path: NO_LIMITS
    """The most bytes of a repository and of a file in it, by its path."""
    hooks: Hooks = field(default_factory=Hooks)
    """The commands that are run before a change."""
    changed: Callable[[PackRepository], None] = lambda repository: None
    """Is told of each repository that a request has changed, and of each that is there when the server starts."""
    clock: Callable[[], float] = time.perf_counter
    """Measures work, in seconds."""
    wall_clock: Callable[[], float] = time.time
    """Dates changes, in seconds since the epoch."""
    policy: Policy = SAFE
    """The policy for faults of new records."""
    texts: TextCache = field(default_factory=TextCache)
    """Shared by all repositories."""
    compression: int | None = None
    """The level of zstd for content bodies, 0 for none; None: `FAR_LEVEL` for clients on other machines."""
    open_files: OpenFiles = field(default_factory=lambda: OpenFiles(MAX_OF_SITE))
    """The files that file-level verbs have opened for answers."""
    upkeep: UpkeepQueue = field(default_factory=UpkeepQueue)
    """Repositories that wait to be tidied."""
    ended: Callable[[EndedRequest], None] | None = None
    """Is told of each request that is over."""
    slow: float | None = None
    """Seconds from which on a request is logged with what it spent them on; None: none is."""
    _counted: CountedTransport = field(init=False)
    _whole: Transport = field(init=False)
    """All that the root is a part of: only looked at, so that no repository is made in the folders of another one."""
    _at: str = field(init=False)
    """The place of the root in that."""
    _open: OrderedDict[str, PackRepository] = field(default_factory=OrderedDict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._counted = CountedTransport(self.root)
        self._whole, self._at = self.root.whole()

    def level_for(self, *, is_local: bool) -> int:
        """The level for a client. `is_local`: it is on this machine."""
        return self.compression if self.compression is not None else 0 if is_local else FAR_LEVEL

    @property
    def facts(self) -> ServerFacts:
        """The facts about this server that clients are told."""
        return _facts(self.allows_vfs)

    def find(self, path: str) -> RepositoryLocation:
        """The repository at a path; a new one may be made there if it is neither in another nor around one.

        Raises:
            InvalidPath: it cannot name a repository, or leads out of the root.
            NestedRepository: it lies inside another repository.
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
        """The first of these places that is known to be a repository, as it was last seen, in a store behind a link."""
        with self._guard:
            repository = next((self._open[name] for name in names if name in self._open), None)
        look = None if repository is None else repository.known
        if repository is None or look is None or not look.state.exists:
            return None
        return RepositoryLocation(repository, True, look)

    def find_above(self, path: str, may_read: MayRead = everything) -> RepositoryLocation:
        """The longest prefix of a path that is a repository; where none is, the path itself. Only those that the user
        may read are looked at.

        Raises:
            InvalidPath: it cannot name a repository, or leads out of the root.
        """
        return self._first_above(path, jail.clean(path), may_read)

    def find_below(self, path: str, may_read: MayRead = everything) -> RepositoryLocation:
        """The same as `find_above`, where the path below the repository is the name of a branch and a path in that.

        Raises:
            InvalidPath: it leads to no repository and cannot name one, or leads out of the root.
        """
        return self._first_above(path, jail.place(path), may_read)

    def _first_above(self, path: str, place: str, may_read: MayRead) -> RepositoryLocation:
        names = [name for name in jail.prefixes(place) if may_read(name)]
        found = self._first(names) if names and self._inside(path, place) == place else None
        return found or RepositoryLocation(self._repository(jail.clean(path)), False)

    def files(self, path: str) -> JailedTransport:
        """All files at and below a path, for the file-level verbs.

        Raises:
            AccessDenied: the server does not allow these.
            InvalidPath: it cannot be one.
        """
        if not self.allows_vfs:
            raise AccessDenied("file-level (VFS) verbs", "this server refuses them (start it with `--allow-vfs`)")
        return JailedTransport(self._counted, path.strip("/"))

    def deleted_above(self, path: str, may_read: MayRead) -> list[PackRepository]:
        """The repositories that were deleted at prefixes of a path, longest first."""
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
        """The repositories at or below a path, in the order of their paths; a path in one gives that one.

        `after`: only those behind this path. `go_on` is called for each folder, and ends the listing by what it raises.
        `must_be`: the folder at the path is to be there. Repositories that the user may not read are left out.

        Raises:
            InvalidPath: it cannot name a folder, or leads out of the root.
            LimitExceeded: there are too many folders.
            TransportError: it must be there, and cannot be listed.
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
            except InvalidPath as error:  # Of a store that is jailed itself, which says so when it is asked.
                if _is_behind(folder, after) and may_read(folder):
                    found.append(ListingEntry(folder, "", (), error.why))
                continue
            if FORMAT in names:
                if not may_read(folder) and self._is_marked(folder):
                    continue
                listed = self._listed(folder)
                if listed.vcs or self._is_marked(folder):
                    if (listed.vcs or listed.problem) and _is_behind(folder, after):
                        found.append(listed)
                    continue  # Nothing lies in a repository but what is its own.
            if folder and CLUSTER in names:  # Its logs are not here: each repository would be said to lack its own.
                if _is_behind(folder, after) and may_read(folder):
                    found.append(ListingEntry(folder, "", (), f"{foreign_in(names)}: list that by itself"))
                continue
            below = folders_below(folder, names)
            folders += [each for each in below if not _order(each) < _order(after)[: each.count("/") + 1]]
        return found

    def _listed(self, path: str) -> ListingEntry:
        """A repository in a listing; without VCS and problem where there is none, or no more."""
        try:
            found = self._look(path)
            state = None if found.look is None else found.look.live
            if state is None:
                return ListingEntry(path, "", ())
            if state.is_incomplete:
                return ListingEntry(path, state.vcs, (), str(IncompleteRepository(path or ".")))
            return ListingEntry(path, state.vcs, tuple(state.refs()))
        except CodedError as error:
            return ListingEntry(path, "", (), str(error))

    def _names(self, folder: str) -> Sequence[str]:
        """The names in a folder; none where it is a file, may not be read, or leads out of the root."""
        try:
            return self._counted.list_directory(folder) if self.inside(folder) else ()
        except TransportError:
            return ()

    def _inside(self, path: str, name: str) -> str:
        if not self.inside(name):
            raise InvalidPath(path, "it leads out of the served folder")
        return name

    def _check_around(self, path: str, name: str, around: Sequence[GetStat], outside: Sequence[GetStat]) -> None:
        """Refuse a place in the folders of a repository, be it one that what is served lies in, and one in a store with
        its logs in a database, which this server does not have: a transport that has them tells of no folder above.
        `around`, `outside`: what was asked of the files of the folders above the place, and of what is served."""
        found = self._first(jail.prefixes(name)[1:], around)
        if found is not None:
            raise NestedRepository(path, found.at)
        for request in outside:
            place, _, file = request.path.rpartition("/")
            if file == CLUSTER and request.was_performed and request.result is not None:
                why = "has its logs in a database, which cannot be reached this way: use one of its servers"
                raise InvalidPath(path, f"{self._whole.describe(place)} {why}")
            with contextlib.suppress(TransportError):  # Who may not read there is not told of one.
                if file == FORMAT and _may_be_format(request) and holds_repository(self._whole, place):
                    raise InvalidPath(path, f"{self._whole.describe(place)} is a repository: nothing is made inside it")

    def _formats(self, names: Sequence[str]) -> list[GetStat]:
        """The requests to the whole store for the formats of places."""
        return [GetStat(_below(_below(self._at, name), FORMAT)) for name in names]

    def _ask(self, formats: Sequence[GetStat]) -> None:
        """Ask as far as that is allowed. Where a farther one fails that is not to the point, for a nearer one may be a
        repository."""
        with contextlib.suppress(TransportError):
            self._whole.perform(formats)

    def _first(self, names: Sequence[str], asked: Sequence[GetStat] | None = None) -> RepositoryLocation | None:
        """The first of these places that is a repository. `asked`: what was asked about their formats."""
        with self._guard:
            known = next((at for at, name in enumerate(names) if name in self._open), len(names))
        formats = asked
        if formats is None:
            # Before one in use there is none, mostly: that is asked at once, for a store behind a link.
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
                continue  # What has that name there is somebody's own.
            if found.exists:
                return found
        return None

    def _is_marked(self, name: str) -> bool:
        """True if a folder's `format` is a repository's; a file that cannot be read may be one."""
        try:
            return is_marked(self._counted.child(name) if name else self._counted)
        except TransportError:
            return True

    def _look(self, name: str, perform: Perform | None = None) -> RepositoryLocation:
        """The repository of that name, kept open, or the place where it may be made. `perform`: as of
        `PackRepository.look_around`."""
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
        """The one that is kept open, else one that nobody has looked for."""
        with self._guard:
            repository = self._open.get(name)
        return repository or PackRepository(
            self._counted,
            name,
            clock=self.wall_clock,
            texts=self.texts,
            policy=self.policy,
        )
