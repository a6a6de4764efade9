"""The making of a repository: where it may be made, and what is there before its first change.

What is there already is never written over. A creation first makes the place of a repository that does not exist yet:
folders, record 1, and `format`, each exclusively and `format` last. The repository comes to be there with the record of
the request that creates it, its first push included: nobody sees it empty. A pack that comes before that needs only the
folder `incoming`. If its request is refused, the folders that were made for it are removed again.

No repository lies inside another. Two creations at once, of `a` and of `a/b`, may be in two processes or on two ways to
the store, so no lock in memory helps. The rule is: each first leaves a trace, the folder of its place, then looks for
the other one. In a store without folders (S3) the trace is record 1 or `format`, which make the folder be there: both
are published before the look, and no folder is exclusive there.

- The inner creation looks for a repository in each folder above. Where one does not exist (yet), it takes the next
  number of that one's log with a record that does nothing.
- The outer creation looks for anything below `a` that is not its own, each time it has judged on a state and before it
  publishes the record that follows that state.

Why one of them always sees the other: either the folder of the inner creation is there when the outer one looks. Or the
outer one looked before. Then it publishes its record before the inner creation takes that number, which finds a
repository in `a`; or it is too late for the number, and looks again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence

from smartserver.errors import InvalidPath, NestedRepository, NoSuchRepository
from smartserver.store.format import (
    CLUSTER,
    DERIVED,
    FOLDERS,
    FOREIGN,
    FORMAT,
    INCOMING,
    LINE,
    LOG,
    NAMES,
    PACKS,
    foreign_in,
    is_marked,
    is_ours,
)
from smartserver.store.log import Log
from smartserver.store.log_view import Head, Perform
from smartserver.store.record import record_path
from smartserver.store.state import State, beginning, following
from transports import paths, steps
from transports.base import EntryKind, Step, Transport
from transports.errors import CodedError, FileExists, NoSuchFile, TransportError, TransportFailed
from transports.steps import GetPublished, GetStat, ListDirectory

LOOKED_AT = 100
"""Folders in which a repository is looked for that a message would name: a store behind a link takes trips for each."""


class LookAbove:
    """A look at the folders above a place: whether it lies in a repository, or in what another tool keeps."""

    def __init__(self, above: Transport, path: str) -> None:
        self._above = above
        self._path = path
        self._lines = {place: GetPublished(paths.join(place, FORMAT)) for place in folders_to(path)[:-1]}
        # Whatever the store's own folder is, is served. One that has its logs in a database is served as a whole.
        names = (*FOREIGN, CLUSTER)
        self._foreign = {place: [GetStat(f"{place}/{name}") for name in names if place] for place in self._lines}
        self.steps: list[Step] = []
        """Performed before `check`."""
        for place, line in self._lines.items():
            self.steps += [line, *self._foreign[place]]

    def check(self, clock: Callable[[], float] | None = None) -> None:
        """Refuse the place if it does.

        `clock`: given if the folder of the new repository is there already. Then a creation above that has not looked
        below yet will see it. One that has looked is told to look again: the next number of its log is taken by a
        record that does nothing. So of two creations at once, of `a` and of `a/b`, one is refused.
        """
        for place, line in self._lines.items():
            looks = [look for look in self._foreign[place] if look.result is not None]
            other = foreign_in([paths.split(look.path)[1] for look in looks])
            if other is not None:
                raise InvalidPath(self._path, f"{name_of(place)} is {other}: nothing is made inside it")
            if is_ours(line.result or b"") and _is_live(self._above, place, clock):
                raise NestedRepository(self._path, place)


def _is_live(above: Transport, place: str, clock: Callable[[], float] | None = None) -> bool:
    """Tell whether a repository is there, or one that cannot be read. `clock`: for a creation that must look again."""
    log = Log(above.child(place) if place else above, place, os.urandom)

    def take_number(state: State) -> tuple[bytes, State] | None:
        return None if state.exists or clock is None else following(state, clock())

    try:
        head = log.look()
        if not head.state.exists and clock is not None:
            head = log.append(head, take_number)
    except NoSuchRepository:
        return False
    except CodedError:
        return True
    return head.state.exists or head.damage is not None


def holds_repository(above: Transport, place: str) -> bool:
    """Tell whether a repository is there: a deleted one is none, one that cannot be read is one."""
    return is_marked(above.child(place) if place else above) and _is_live(above, place)


def repository_below(above: Transport, place: str) -> str | None:
    """The first repository that is found at or below a place; a message needs one, so not every folder is looked at."""
    todo = [place]
    for _ in range(LOOKED_AT):
        if not todo:
            break
        at = todo.pop(0)
        with contextlib.suppress(TransportError):
            if holds_repository(above, at):
                return at
            todo += [paths.join(at, name) for name in above.list_directory(at)]
    return None


def folders_to(path: str) -> list[str]:
    """The folders on the way to the repository's, the store's own first, and its own."""
    parts = path.split("/") if path else []
    return ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]


def name_of(place: str) -> str:
    """A folder on the way, in a message that has the whole path besides, as its user says it."""
    return repr(place.rpartition("/")[2]) if place else "the served folder"


class PlaceLook:
    """A look at the place of a repository and at the folders above it; `steps` are performed first."""

    def __init__(self, above: Transport, path: str) -> None:
        self._path = path
        self._folders = [GetStat(place) for place in folders_to(path)]
        self.made: Sequence[str] = ()
        """Folders that were made since, for a pack that comes."""
        self._left, self._above, self.below = Remains(path), LookAbove(above, path), LookBelow()
        # The format is looked for last: a creation that is going on makes it before anything that counts as left.
        below = [step.below(path) for step in self.below.steps]
        self.steps: list[Step] = [*self._folders, *self._left.steps, *self._above.steps, *below]

    @property
    def has_root(self) -> bool:
        """True if the folder that all paths count from is there."""
        return self._folders[0].result is not None

    @property
    def is_vacant(self) -> bool:
        """True if nothing is in the place."""
        return bool(self._path) and self._folders[-1].result is None

    def describe(self) -> str:
        """A description of the place, for a message; empty if nothing is there."""
        file = self._file()
        if file is not None:
            return "a file" if file == self._path else f"a file, {name_of(file)}, above it"
        left = self._remains()
        return foreign_in(self._names) or (f"what is left of one: {left}" if left is not None else "")

    def check(self) -> None:
        """Refuse a place where no repository can be made; what is below it is not looked at."""
        path, file = self._path, self._file()
        if file is not None:
            raise InvalidPath(path, "a file is there" if file == path else f"{name_of(file)} is a file")
        self._above.check()
        other, left = foreign_in(self._names), self._remains()
        if other is not None:
            raise InvalidPath(path, f"{other} is there")
        if left is not None:
            raise InvalidPath(path, f"the folder holds {left}: restore that file, or move the folder away")

    def missing(self) -> list[str]:
        """The folders that are to be made."""
        own = [paths.join(self._path, name) for name in FOLDERS if name not in self._names]
        found = [*(look.path for look in self._folders[1:] if look.result is None), *own]
        return [folder for folder in found if folder not in self.made]

    def _file(self) -> str | None:
        found = [(look.path, look.result) for look in self._folders[1:]]
        return next((path for path, stat in found if stat and stat.kind is not EntryKind.DIRECTORY), None)

    def _remains(self) -> str | None:
        return None if FORMAT in self._names else self._left.found

    @property
    def _names(self) -> list[str]:
        """The names in the folder, if it is there."""
        return self.below.names.result or []


class LookBelow:
    """A look at what the folder of a repository holds."""

    def __init__(self) -> None:
        self.names, self._in_format = ListDirectory(""), ListDirectory(FORMAT)
        self._line = GetPublished(FORMAT)
        self.steps: list[Step] = [self.names, self._in_format, self._line]
        """Performed in that folder before anything is asked of it."""

    @property
    def is_marked(self) -> bool:
        """True if it has a repository's format."""
        return is_ours(self._line.result or b"")

    @property
    def others(self) -> list[str]:
        """The names of what belongs to no repository."""
        # An empty folder may be what a loss of power left of the format.
        ours = NAMES if self.is_marked or self._in_format.result == [] else NAMES - {FORMAT}
        return [name for name in self.names.result or () if name not in ours]


class Remains:
    """The signs of an earlier repository in a folder without format, looked at in one trip. No repository is ever made
    over one: its packs may be all there is. An index says nothing that its pack does not."""

    def __init__(self, path: str) -> None:
        self._kept = {name: ListDirectory(paths.join(path, name)) for name in (PACKS, LOG)}
        self.steps: list[Step] = [*self._kept.values()]

    @property
    def found(self) -> str | None:
        """A sign, once it was looked at; None if there is none."""
        first = record_path(1).partition("/")[2]  # It says nothing, and a creation that was cut short leaves it.
        kept = [
            folder
            for folder, listing in self._kept.items()
            if any(name != first and not name.endswith(DERIVED) for name in listing.result or ())
        ]
        return f"{kept[0]!r} files and no {FORMAT!r}" if kept else None


class Creation:
    """The making of one repository; nothing is done before it is asked for."""

    def __init__(
        self, above: Transport, path: str, randomness: Callable[[int], bytes], clock: Callable[[], float]
    ) -> None:
        """`path`: of the repository, below `above`."""
        self._above = above
        self._path = path
        self._folder = above.child(path) if path else above
        self._randomness = randomness
        self._clock = clock
        self._made = False
        self._early: list[str] = []
        """The folders that were made for packs that come, outermost first."""
        self._seen: PlaceLook | None = None
        """The look at the place that came with the last look for a repository there."""
        self._record, first = beginning(randomness(16), clock())
        """Record 1, as it is made here."""
        self.first = Head(first)
        """The head of the place, if it is made here."""

    line = LINE.decode().rstrip("\n")
    """The line of the format file of a repository that is made here."""

    def look(self, perform: Perform, asked: Sequence[Step]) -> None:
        """Perform steps of its folder, and look at the place, in one trip. `perform`: that of the folder above."""
        self._seen, look = None, PlaceLook(self._above, self._path)
        own = [step.below(self._path) for step in asked]
        first = {(type(step), step.path): step for step in reversed((*own, *look.steps))}
        try:
            perform([step for step in (*own, *look.steps) if first[type(step), step.path] is step])
        except TransportError as error:
            left = [step for step in asked if not (isinstance(step, steps.Query) and step.was_performed)]
            if left and isinstance(error, TransportFailed):
                raise
            self._folder.perform(left)  # What cannot be looked at is told when it is needed.
            return
        for step in look.steps:
            answered = first[type(step), step.path]
            if isinstance(step, steps.Query) and isinstance(answered, steps.Query) and step is not answered:
                step.settle(answered.result)
        self._seen = look

    def seen(self) -> PlaceLook:
        """The last look at the place, or one as of now."""
        if self._seen is None:
            look = PlaceLook(self._above, self._path)
            self._above.perform(look.steps)
            return look
        return self._seen

    def make_incoming(self) -> None:
        """Make the folder for a pack that comes, and those above it."""
        if self._made:
            return
        place, incoming = self.seen(), paths.join(self._path, INCOMING)
        place.check()
        self.check_below(place.below)
        folders = [folder for folder in place.missing() if f"{incoming}/".startswith(f"{folder}/")]
        try:
            self._above.perform([*map(steps.MakeDirectory, folders)])
        except (FileExists, NoSuchFile):  # Somebody else is at work there.
            self._seen = None
            self.perform(())
            return
        self._early += folders
        place.made, self._seen = [*self._early], place

    def remove_incoming(self) -> None:
        """Remove the folders that `make_incoming` made, as the pack's request was refused; what else needs them keeps
        them."""
        self._seen = None
        early, self._early = self._early, []
        with contextlib.suppress(TransportError):
            if early and not self._made and not self._above.exists(paths.join(self._path, LOG)):
                while early:
                    self._above.remove_directory(early[-1])
                    early.pop()
        self._early = early

    def perform(self, wanted: Sequence[Step]) -> None:
        """Make the place durably, and perform steps of its folder, in one trip. A half-made place is completed."""
        if self._made:
            self._folder.perform(wanted)
            return
        early, self._seen = self._seen, None
        if early is not None and early.is_vacant:
            # If something is there by now, the first folder cannot be made, and all of it is looked at again.
            with contextlib.suppress(FileExists, NoSuchFile):
                self._make(early, wanted)
                return
        with contextlib.suppress(NoSuchFile):  # A request that was refused may have removed folders since the look.
            self._make(self.seen(), wanted, over=True)
            return
        self._make(self.seen(), wanted, over=True)

    def _make(self, place: PlaceLook, wanted: Sequence[Step], *, over: bool = False) -> None:
        """`perform`, in a place that was looked at. `over`: what was made there meanwhile is taken over."""
        place.check()
        self.check_below(place.below)
        look = LookAbove(self._above, self._path)
        puts = [step for step in wanted if isinstance(step, steps.Put)]
        rest = [step for step in wanted if step not in puts]
        folders = len(place.missing())
        made: list[Step] = [
            *map(steps.MakeDirectory, place.missing()),
            # With a format there was a record 1: its number is free again once it was deleted.
            *([] if place.below.is_marked else self._files()),
            # Also what another process made: it may have crashed before it synced.
            *[steps.SyncDirectory(folder) for folder in folders_to(self._path)[::-1]],
            *look.steps,
        ]
        brought = [step.below(self._path) for step in puts]
        try:
            # What is brought is put with the files: behind a step that cannot be taken back it takes more trips.
            asked = [*made[:folders], *brought, *made[folders:], *(step.below(self._path) for step in rest)]
            self._above.perform(asked)
        except TransportError as error:
            self._discard([*made, *brought])
            if not over or not isinstance(error, FileExists):
                raise
            self._make_rest(made)
            self._folder.perform(wanted)
        look.check(self._clock)
        self._made, self._early = True, []

    def forget(self) -> None:
        """Make it again next time."""
        self._made = False

    def look_again(self) -> None:
        """Forget how the place looked."""
        self._seen = None

    def _files(self) -> Iterator[Step]:
        files = {record_path(1): self._record, FORMAT: LINE}
        puts = {name: f"{INCOMING}/{self._randomness(8).hex()}.{name.rpartition('/')[2]}" for name in files}
        for name, content in files.items():
            yield steps.Put(paths.join(self._path, puts[name]), content)
        yield steps.Publish(paths.join(self._path, puts[record_path(1)]), paths.join(self._path, record_path(1)))
        yield steps.SyncDirectory(paths.join(self._path, LOG))
        yield steps.Publish(paths.join(self._path, puts[FORMAT]), paths.join(self._path, FORMAT))

    def _make_rest(self, made: Sequence[Step]) -> None:
        """Perform each of the steps, where some of what they make is there by now."""
        for step in made:
            with contextlib.suppress(FileExists):
                self._above.perform([step])
            if isinstance(step, steps.MakeDirectory) and not self._above.exists(step.path):
                raise InvalidPath(self._path, f"{name_of(step.path)} is a link that leads nowhere")
        self._discard(made)

    def _discard(self, made: Sequence[Step]) -> None:
        """Delete what was not published, as far as that works: `incoming` is swept."""
        for step in made:
            if isinstance(step, steps.Put):
                with contextlib.suppress(TransportError):
                    self._above.delete(step.path)

    def check_below(self, below: LookBelow) -> None:
        """Refuse a folder that holds something which belongs to no repository, or another repository."""
        for name in below.others:
            found = repository_below(self._above, paths.join(self._path, name))
            if found is not None:
                inner = found[len(self._path) :].strip("/")
                why = f"a repository is below it at {inner!r}: none can be made above that"
                raise InvalidPath(self._path, why)
            is_left = is_marked(self._folder.child(name))
            what = "is left of one that is gone: remove it first" if is_left else "belongs to no repository"
            raise InvalidPath(self._path, f"the folder holds {name!r}, which {what}")
