"""The making of a repository: where it may be made, and what is there before its first change.

What is there already is never written over. A creation first makes the place of a repository that does not exist yet:
folders, record 1, and `format`, each exclusively and `format` last. The repository comes to be there with the record of
the request that creates it, its first push included: nobody sees it empty. A creation that is refused leaves the place.

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
from collections.abc import Callable, Iterator, Sequence

from smartserver.errors import InvalidPath
from smartserver.store.format import FORMAT, INCOMING, LINE, LOG
from smartserver.store.log_view import Head, Perform
from smartserver.store.record import record_path
from smartserver.store.state import beginning
from smartserver.store.surroundings import LookAbove, LookBelow, PlaceLook, folders_to, name_of, repository_below
from transports import paths, steps
from transports.base import Step, Transport
from transports.errors import FileExists, NoSuchFile, TransportError, TransportFailed


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
        self._made = True

    def forget(self) -> None:
        """Make it again next time."""
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
            raise InvalidPath(self._path, f"the folder holds {name!r}, which belongs to no repository")
