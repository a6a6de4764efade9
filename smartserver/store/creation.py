"""The making of a repository: where it may be made, and what is there before its first change.

What is there already is never written over. A creation first makes the place of a repository that does not exist yet:
folders, record 1, and `format`, each exclusively and `format` last. The repository comes to be there with the record of
the request that creates it, its first push included: nobody sees it empty. A creation that is refused leaves the place.

No repository lies inside another. Two creations at once, of `a` and of `a/b`, may be in two processes or on two ways to
the store, so no lock in memory helps. The rule is: each first leaves a trace, the folder of its place, then looks for
the other one.

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
from collections.abc import Callable, Iterator, Sequence

from smartserver.errors import InvalidPath
from smartserver.store.format import FOLDERS, FOREIGN, FORMAT, INCOMING, LINE, LOG, NAMES, foreign_in, is_ours
from smartserver.store.log import Head
from smartserver.store.record import encode_record, first_record, hash_of, record_path
from smartserver.store.remains import Remains
from smartserver.store.state import first_state
from smartserver.store.surroundings import LookAbove, folders_to, join_path, name_of, repository_below
from transports import steps
from transports.base import EntryKind, Step, Transport
from transports.errors import FileExists, TransportError


class LookBelow:
    """A look at what the folder of a repository holds."""

    def __init__(self) -> None:
        self.names, self._in_format = steps.ListDirectory(""), steps.ListDirectory(FORMAT)
        self._line = steps.GetPublished(FORMAT)
        self.steps: list[Step] = [self.names, self._in_format, self._line]
        """Performed in that folder before anything is asked of it."""

    @property
    def is_marked(self) -> bool:
        """Whether it has a repository's format."""
        return is_ours(self._line.result or b"")

    @property
    def others(self) -> list[str]:
        """The names of what belongs to no repository."""
        # An empty folder may be what a loss of power left of the format.
        ours = NAMES if self.is_marked or self._in_format.result == [] else NAMES - {FORMAT}
        return [name for name in self.names.result or () if name not in ours]


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
        self._record = encode_record(first_record(randomness(16), int(clock() * 1000)))
        """Record 1, as it is made here."""

    line = LINE.decode().rstrip("\n")
    """What the format file says of a repository that is made here."""

    @property
    def first(self) -> Head:
        """The head of the place, if it is made here."""
        return Head(first_state(hash_of(self._record)))

    def make(self) -> None:
        """Make the place.

        Raises:
            NestedRepository, InvalidPath: as `perform`.
        """
        self.perform([])

    def perform(self, wanted: Sequence[Step]) -> None:
        """Make the place, all of it durable, and perform steps of its folder, in one trip; a half-made place is taken
        over, and folders that are missing are made.

        Raises:
            NestedRepository: it would lie inside another repository.
            InvalidPath: the folder holds something else, or what is left of a repository.
            TransportError: as of a step.
        """
        if self._made:
            self._folder.perform(wanted)
            return
        missing, look = self._missing(), LookAbove(self._above, self._path)
        made: list[Step] = [
            *missing,
            # Also what another process made: it may have crashed before it synced.
            *[steps.SyncDirectory(place) for place in folders_to(self._path)[::-1]],
            *look.steps,
        ]
        try:
            self._above.perform([*made, *[step.below(self._path) for step in wanted]])
        except FileExists:
            self._make_rest(made)
            self._folder.perform(wanted)
        except TransportError:
            self._discard(made)
            raise
        look.check(self._clock)
        self._made = True

    def forget(self) -> None:
        """Make it again next time."""
        self._made = False

    def _missing(self) -> list[Step]:
        """Look at the place, and refuse one where no repository can be made; the steps that make what it lacks.

        Raises:
            NestedRepository, InvalidPath: as `make`.
        """
        above, path = self._above, self._path
        places = [steps.GetStat(place) for place in folders_to(path)[1:]]
        others = [steps.GetStat(self._full(name)) for name in FOREIGN]
        look, left, below = LookAbove(above, path), Remains(path), LookBelow()
        above.perform([*places, *look.steps, *others, *left.steps, *(step.below(path) for step in below.steps)])
        file = next((each.path for each in places if each.result and each.result.kind is not EntryKind.DIRECTORY), None)
        if file is not None:
            raise InvalidPath(path, "a file is there" if file == path else f"{name_of(file)} is a file")
        look.check()
        other = foreign_in([name for name, each in zip(FOREIGN, others, strict=True) if each.result is not None])
        if other is not None:
            raise InvalidPath(path, f"{other} is there")
        if left.found is not None:
            raise InvalidPath(path, f"the folder holds {left.found}: restore that file, or move the folder away")
        self.check_below(below)
        there = below.names.result or ()
        folders = [each.path for each in places if each.result is None]
        folders += [self._full(name) for name in FOLDERS if name not in there]
        # With a format there was a record 1: its number is free again once it was deleted.
        return [*map(steps.MakeDirectory, folders), *([] if below.is_marked else self._files())]

    def _files(self) -> Iterator[Step]:
        files = {record_path(1): self._record, FORMAT: LINE}
        puts = {name: f"{INCOMING}/{self._randomness(8).hex()}.{name.rpartition('/')[2]}" for name in files}
        for name, content in files.items():
            yield steps.Put(self._full(puts[name]), content)
        yield steps.Publish(self._full(puts[record_path(1)]), self._full(record_path(1)))
        yield steps.SyncDirectory(self._full(LOG))
        yield steps.Publish(self._full(puts[FORMAT]), self._full(FORMAT))

    def _make_rest(self, made: Sequence[Step]) -> None:
        """Perform each of the steps, where some of what they make is there by now.

        Raises:
            InvalidPath: it is a link that leads nowhere.
        """
        for step in made:
            with contextlib.suppress(FileExists):
                self._above.perform([step])
            if isinstance(step, steps.MakeDirectory) and not self._above.exists(step.path):
                raise InvalidPath(self._path, f"{name_of(step.path)} is a link that leads nowhere")
        self._discard(made)

    def _discard(self, made: Sequence[Step]) -> None:
        """Delete what was not published, as far as that works: `incoming` is swept."""
        for step in made:
            if isinstance(step, steps.Publish):
                with contextlib.suppress(TransportError):
                    self._above.delete(step.path)

    def _full(self, name: str) -> str:
        return join_path(self._path, name)

    def check_below(self, below: LookBelow) -> None:
        """Refuse a folder that holds something which belongs to no repository, or another repository.

        Raises:
            InvalidPath: it does.
        """
        for name in below.others:
            found = repository_below(self._above, join_path(self._path, name))
            if found is not None:
                inner = found[len(self._path) :].strip("/")
                why = f"a repository is below it at {inner!r}: none can be made above that"
                raise InvalidPath(self._path, why)
            raise InvalidPath(self._path, f"the folder holds {name!r}, which belongs to no repository")
