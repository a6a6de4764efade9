"""The creation of a repository: where it may be created, and the files that exist before its first change.

Existing files are never overwritten. A creation first makes the place of a repository that does not exist yet: folders,
record 1, and `format`, each exclusively and `format` last. The repository exists from the record of the request that
creates it, its first push included: no client sees it empty. A refused creation leaves the place, which is harmless.

No repository is inside another. Two concurrent creations, of `a` and of `a/b`, may be in two processes or on two ways
to the store, so no lock in memory helps. The rule is: each first leaves a trace, the folder of its place, then looks
for the other one. In a store without folders (S3) the trace is record 1 or `format`, after which the folder is listed:
both are published before the look, and no folder is exclusive there.

- The inner creation looks for a repository in each folder above. If a folder above has a log but no repository (yet),
  the inner creation takes the next number of that log with a record that does nothing.
- The outer creation looks at everything below `a`. Files and repositories there refuse it. Empty folders, uploads that
  were cut short, and logs without a repository do not; of each such log it takes the next number, too.

Both look each time after they have read the state that their record is to follow. So one of them always sees the other.
Suppose that both published their records, and consider the look that took a number last. The other creation's record
follows this number in its log, so the other one has read its state after that, and looked again: a contradiction. A
look that finds no log takes no number. Then the other creation makes its log and looks later, and the same holds from
there. A look above ends at the root of the store, so both must have the same root.
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
"""The most folders below a new repository's folder that are searched. Each takes round trips in a remote store."""


class LookAbove:
    """Checks the folders above a place for repositories of ours or of another tool."""

    def __init__(self, above: Transport, path: str) -> None:
        self._above = above
        self._path = path
        self._lines = {place: GetPublished(paths.join(place, FORMAT)) for place in folders_to(path)[:-1]}
        # The store's own folder is not checked. A store that has its logs in a database is served as a whole.
        names = (*FOREIGN, CLUSTER)
        self._foreign = {place: [GetStat(f"{place}/{name}") for name in names if place] for place in self._lines}
        self.steps: list[Step] = []
        """The steps to perform before `check`."""
        for place, line in self._lines.items():
            self.steps += [line, *self._foreign[place]]

    def check(self, clock: Callable[[], float] | None = None) -> None:
        """Refuse the place if it is inside a repository, of ours or of another tool.

        `clock` is given if the folder of the new repository exists already. Then a creation above that has not looked
        below yet will see the folder. A creation that has looked must look again, as a record that does nothing takes
        the next number of its log. So of two concurrent creations, of `a` and of `a/b`, one is refused.
        """
        for place, line in self._lines.items():
            looks = [look for look in self._foreign[place] if look.result is not None]
            other = foreign_in([paths.split(look.path)[1] for look in looks])
            if other is not None:
                raise InvalidPath(self._path, f"{name_of(place)} is {other}: name a place outside it")
            if is_ours(line.result or b"") and _is_live(self._above, place, clock):
                raise NestedRepository(self._path, place)


def _is_live(above: Transport, place: str, clock: Callable[[], float] | None = None) -> bool:
    """Tell whether a place has a repository, readable or not. `clock`: if it is given and there is no repository, a
    record that does nothing takes the next number of the log."""
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
    """Tell whether a place has a repository. A deleted repository does not count; an unreadable one does."""
    return is_marked(above.child(place) if place else above) and _is_live(above, place)


def folders_to(path: str) -> list[str]:
    """Return the folders on the way to a repository: the store's own (empty) first, the repository's last."""
    parts = path.split("/") if path else []
    return ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]


def name_of(place: str) -> str:
    """Return the last part of a folder's path, quoted, for a message that also has the whole path."""
    return repr(place.rpartition("/")[2]) if place else "the served folder"


class PlaceLook:
    """A look at the place of a repository and at the folders above it. The caller must perform `steps` before any other
    use."""

    def __init__(self, above: Transport, path: str) -> None:
        self._path = path
        self._folders = [GetStat(place) for place in folders_to(path)]
        self._left, self._above, self.below = Remains(path), LookAbove(above, path), LookBelow()
        # The format is looked for last: a concurrent creation makes it before any file that counts as a remain.
        below = [step.below(path) for step in self.below.steps]
        self.steps: list[Step] = [*self._folders, *self._left.steps, *self._above.steps, *below]

    @property
    def has_root(self) -> bool:
        """True if the root folder of the store exists."""
        return self._folders[0].result is not None

    @property
    def is_vacant(self) -> bool:
        """True if the folder of the place does not exist."""
        return bool(self._path) and self._folders[-1].result is None

    def describe(self) -> str:
        """Describe for a message what is at the place instead of a repository; empty if the place does not exist."""
        file = self._file()
        if file is not None:
            return "a file" if file == self._path else f"a file, {name_of(file)}, above it"
        left = self._remains()
        return foreign_in(self._names) or (f"what is left of one: {left}" if left is not None else "")

    def check(self) -> None:
        """Refuse a place where no repository can be created; `Creation.check_below` checks its other files."""
        path, file = self._path, self._file()
        if file is not None:
            raise InvalidPath(path, "a file has this path" if file == path else f"{name_of(file)} is a file")
        self._above.check()
        other, left = foreign_in(self._names), self._remains()
        if other is not None:
            raise InvalidPath(path, f"there is {other} already")
        if left is not None:
            raise InvalidPath(path, f"the folder holds {left}: restore that file, or move the folder away")

    def missing(self) -> list[str]:
        """Return the folders that must be created, outermost first."""
        own = [paths.join(self._path, name) for name in FOLDERS if name not in self._names]
        return [*(look.path for look in self._folders[1:] if look.result is None), *own]

    def _file(self) -> str | None:
        found = [(look.path, look.result) for look in self._folders[1:]]
        return next((path for path, stat in found if stat and stat.kind is not EntryKind.DIRECTORY), None)

    def _remains(self) -> str | None:
        return None if FORMAT in self._names else self._left.found

    @property
    def _names(self) -> list[str]:
        """The names in the folder; empty if the folder does not exist."""
        return self.below.names.result or []


class LookBelow:
    """A look at the names in the folder of a repository. The caller must perform `steps` before any other use."""

    def __init__(self) -> None:
        self.names, self._in_format = ListDirectory(""), ListDirectory(FORMAT)
        self._line = GetPublished(FORMAT)
        self.steps: list[Step] = [self.names, self._in_format, self._line]
        """The steps to perform in the repository's folder."""

    @property
    def is_marked(self) -> bool:
        """True if the folder has a repository's `format` file."""
        return is_ours(self._line.result or b"")

    @property
    def others(self) -> list[str]:
        """The names in the folder that are not part of a repository."""
        # After a loss of power, `format` may be an empty folder.
        ours = NAMES if self.is_marked or self._in_format.result == [] else NAMES - {FORMAT}
        return [name for name in self.names.result or () if name not in ours]


class Remains:
    """The signs of an earlier repository in a folder without `format`, read in one round trip. No repository is created
    over them: its packs may be the only copy. Files derived from a pack do not count."""

    def __init__(self, path: str) -> None:
        self._kept = {name: ListDirectory(paths.join(path, name)) for name in (PACKS, LOG)}
        self.steps: list[Step] = [*self._kept.values()]

    @property
    def found(self) -> str | None:
        """A description, for a message, of the first sign that `steps` found; None if they found none."""
        first = record_path(1).partition("/")[2]  # It has no content, and an interrupted creation leaves it.
        kept = [
            folder
            for folder, listing in self._kept.items()
            if any(name != first and not name.endswith(DERIVED) for name in listing.result or ())
        ]
        return f"{kept[0]!r} files and no {FORMAT!r}" if kept else None


class Creation:
    """The creation of one repository. Creating this object does no I/O."""

    def __init__(
        self, above: Transport, path: str, randomness: Callable[[int], bytes], clock: Callable[[], float]
    ) -> None:
        """`path`: the path of the repository below `above`."""
        self._above = above
        self._path = path
        self._folder = above.child(path) if path else above
        self._randomness = randomness
        self._clock = clock
        self._made = False
        self.is_taken = False
        """True if a part of the place existed when `perform` created it. The log may then have more than record 1."""
        self._seen: PlaceLook | None = None
        """The last look at the place; None if it is stale."""
        self._record, first = beginning(randomness(16), clock())
        """The content of record 1, which this creation publishes."""
        self.first = Head(first)
        """The head after record 1."""

    line = LINE.decode().rstrip("\n")
    """The line of the format file of a new repository."""

    def look(self, perform: Perform, asked: Sequence[Step]) -> None:
        """Perform the steps `asked` in the repository's folder, and look at the place, in one round trip. `perform`:
        performs steps in the folder above."""
        self._seen, look = None, PlaceLook(self._above, self._path)
        own = [step.below(self._path) for step in asked]
        first = {(type(step), step.path): step for step in reversed((*own, *look.steps))}
        try:
            perform([step for step in (*own, *look.steps) if first[type(step), step.path] is step])
        except TransportError as error:
            left = [step for step in asked if not (isinstance(step, steps.Query) and step.was_performed)]
            if left and isinstance(error, TransportFailed):
                raise
            self._folder.perform(left)  # The error of the look is raised when the look is needed.
            return
        for step in look.steps:
            answered = first[type(step), step.path]
            if isinstance(step, steps.Query) and isinstance(answered, steps.Query) and step is not answered:
                step.settle(answered.result)
        self._seen = look

    def seen(self) -> PlaceLook:
        """Return the last look at the place. If there was none, look now."""
        if self._seen is None:
            look = PlaceLook(self._above, self._path)
            self._above.perform(look.steps)
            return look
        return self._seen

    def perform(self, wanted: Sequence[Step]) -> None:
        """Create the place durably, and perform the steps `wanted` in its folder, in one round trip. A half-created
        place is completed."""
        if self._made:
            self.check_above([step.below(self._path) for step in wanted])
            return
        early, self._seen = self._seen, None
        if early is not None and early.is_vacant:
            # If the place is not vacant any more, making the first folder fails, and the place is looked at again.
            with contextlib.suppress(FileExists, NoSuchFile):
                self._make(early, wanted)
                return
        self._make(self.seen(), wanted, over=True)

    def _make(self, place: PlaceLook, wanted: Sequence[Step], *, over: bool = False) -> None:
        """Do the work of `perform` after a look at the place. `over`: True to accept files that exist already."""
        place.check()
        self.check_below(place.below)
        look = LookAbove(self._above, self._path)
        puts = [step for step in wanted if isinstance(step, steps.Put)]
        rest = [step for step in wanted if step not in puts]
        folders = len(place.missing())
        made: list[Step] = [
            *map(steps.MakeDirectory, place.missing()),
            # With a format there was a record 1, which is never published again, though it may be deleted by now.
            *([] if place.below.is_marked else self._files()),
            # Folders of another process are synced too: it may have crashed before it synced them.
            *[steps.SyncDirectory(folder) for folder in folders_to(self._path)[::-1]],
            *look.steps,
        ]
        brought = [step.below(self._path) for step in puts]
        try:
            # The caller's files are written before any step that cannot be undone: after one they take more trips.
            asked = [*made[:folders], *brought, *made[folders:], *(step.below(self._path) for step in rest)]
            self._above.perform(asked)
        except TransportError as error:
            self._discard([*made, *brought])
            if not over or not isinstance(error, FileExists):
                raise
            self.is_taken = True
            self._make_rest(made)
            self._folder.perform(wanted)
        look.check(self._clock)
        self._made = True

    def check_above(self, before: Sequence[Step] = ()) -> None:
        """Perform `before`, then refuse the place if it is inside a repository. This method must be called each time a
        newer state was read."""
        look = LookAbove(self._above, self._path)
        self._above.perform([*before, *look.steps])
        look.check(self._clock)

    def forget(self) -> None:
        """Make the next call of `perform` create the place again."""
        self._made = False

    def _files(self) -> Iterator[Step]:
        files = {record_path(1): self._record, FORMAT: LINE}
        puts = {name: f"{INCOMING}/{self._randomness(8).hex()}.{name.rpartition('/')[2]}" for name in files}
        for name, content in files.items():
            yield steps.Put(paths.join(self._path, puts[name]), content)
        yield steps.Publish(paths.join(self._path, puts[record_path(1)]), paths.join(self._path, record_path(1)))
        yield steps.SyncDirectory(paths.join(self._path, LOG))
        yield steps.Publish(paths.join(self._path, puts[FORMAT]), paths.join(self._path, FORMAT))

    def _make_rest(self, made: Sequence[Step]) -> None:
        """Perform the steps one by one. Files and folders that exist already are skipped."""
        for step in made:
            with contextlib.suppress(FileExists):
                self._above.perform([step])
            if isinstance(step, steps.MakeDirectory) and not self._above.exists(step.path):
                raise InvalidPath(self._path, f"{name_of(step.path)} is a link that leads nowhere")
        self._discard(made)

    def _discard(self, made: Sequence[Step]) -> None:
        """Delete unpublished temporary files, ignoring errors: upkeep deletes leftovers."""
        for step in made:
            if isinstance(step, steps.Put):
                with contextlib.suppress(TransportError):
                    self._above.delete(step.path)

    def check_below(self, below: LookBelow, *, takes_numbers: bool = False) -> None:
        """Refuse a folder that contains another repository, or files that belong to no repository. `takes_numbers`:
        True if the record of this creation follows. Then a creation below must look again, as in `LookAbove.check`."""
        found = [paths.join(self._path, name) for name in below.others]
        for looked in range(LOOKED_AT):
            if looked == len(found):
                return
            place = found[looked]
            folder, inner = self._above.child(place), place[len(self._path) :].lstrip("/")
            with contextlib.suppress(NoSuchFile):  # It may be removed meanwhile.
                if inner == FORMAT or self._above.stat(place).kind is not EntryKind.DIRECTORY:
                    raise InvalidPath(self._path, f"the folder holds {inner!r}, which belongs to no repository")
                left = Remains(place)
                self._above.perform(left.steps)
                has_log = is_marked(folder)
                if has_log and _is_live(self._above, place, self._clock if takes_numbers else None):
                    why = f"a repository is below it at {inner!r}: none can be made above that"
                    raise InvalidPath(self._path, why)
                own = NAMES if has_log or left.found is None else {INCOMING}
                found += [paths.join(place, name) for name in folder.list_directory("") if name not in own]
        if len(found) > LOOKED_AT:
            raise InvalidPath(self._path, f"more than {LOOKED_AT} folders are below it")
