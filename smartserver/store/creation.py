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
from collections.abc import Callable

from smartserver.errors import InvalidPath
from smartserver.store.format import FOLDERS, FORMAT, INCOMING, LINE, LOG, NAMES, is_marked, is_ours, recognise
from smartserver.store.record import encode_record, first_record, record_path
from smartserver.store.remains import remains
from smartserver.store.surroundings import (
    check_above,
    file_in_the_way,
    folders_to,
    join_path,
    name_of,
    repository_below,
)
from transports import steps
from transports.base import Transport
from transports.errors import FileExists, TransportError


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

    line = LINE.decode().rstrip("\n")
    """What the format file says of a repository that is made here."""

    def make(self) -> None:
        """Make the place, all of it durable; a half-made one is taken over, and folders that are missing are made.

        Raises:
            NestedRepository: it would lie inside another repository.
            InvalidPath: the folder holds something else, or what is left of a repository.
        """
        if self._made:
            return
        above, path = self._above, self._path
        places = folders_to(path)
        file = file_in_the_way(above, path)
        if file is not None:
            raise InvalidPath(path, "a file is there" if file == path else f"{name_of(file)} is a file")
        check_above(above, path, clock=self._clock)
        for place in places[1:]:
            with contextlib.suppress(FileExists):
                above.make_directory(place)
            if not above.exists(place):
                raise InvalidPath(path, f"{name_of(place)} is a link that leads nowhere")
        other = recognise(self._folder)
        if other is not None:
            raise InvalidPath(path, f"{other} is there")
        left = remains(self._folder)
        if left is not None:
            raise InvalidPath(path, f"the folder holds {left}: restore that file, or move the folder away")
        self.check_below()
        for name in FOLDERS:
            with contextlib.suppress(FileExists):
                self._folder.make_directory(name)
        if not is_marked(self._folder):  # Else record 1 may be gone, and its number be free.
            record = first_record(self._randomness(16), int(self._clock() * 1000))
            self._publish(record_path(1), encode_record(record))
            self._folder.sync_directory(LOG)
            self._publish(FORMAT, LINE)
        # Also what another process made: it may have crashed before it synced.
        for place in places[::-1]:
            above.sync_directory(place)
        check_above(above, path, claimed=True, clock=self._clock)
        self._made = True

    def forget(self) -> None:
        """Make it again next time."""
        self._made = False

    def _publish(self, path: str, content: bytes) -> None:
        temporary = f"{INCOMING}/{self._randomness(8).hex()}.{path.rpartition('/')[2]}"
        try:
            self._folder.perform([steps.Put(temporary, content), steps.Publish(temporary, path)])
        except TransportError as wrong:
            with contextlib.suppress(TransportError):
                self._folder.delete(temporary)
            if not isinstance(wrong, FileExists):
                raise

    def check_below(self) -> None:
        """Refuse a folder that holds something which belongs to no repository, or another repository.

        Raises:
            InvalidPath: it does.
        """
        names, in_format, line = steps.ListDirectory(""), steps.ListDirectory(FORMAT), steps.GetPublished(FORMAT)
        self._folder.perform([names, in_format, line])
        # An empty folder may be what a loss of power left of the format.
        ours = NAMES if is_ours(line.result or b"") or in_format.result == [] else NAMES - {FORMAT}
        for name in names.result or ():
            if name not in ours:
                found = repository_below(self._above, join_path(self._path, name))
                if found is not None:
                    inner = found[len(self._path) :].strip("/")
                    why = f"a repository is below it at {inner!r}: none can be made above that"
                    raise InvalidPath(self._path, why)
                raise InvalidPath(self._path, f"the folder holds {name!r}, which belongs to no repository")
