"""What lies where no repository is: what is left of one, which is never written over, or what another tool keeps."""

from __future__ import annotations

from smartserver.errors import InvalidPath
from smartserver.store.format import DERIVED, FOLDERS, FORMAT, LOG, NAMES, PACKS, foreign_in, is_ours
from smartserver.store.record import record_path
from smartserver.store.surroundings import LookAbove, folders_to, join_path, name_of
from transports.base import EntryKind, Step, Transport
from transports.steps import GetPublished, GetStat, ListDirectory


class PlaceLook:
    """A look at the place of a repository and at the folders above it; `steps` are performed first."""

    def __init__(self, above: Transport, path: str) -> None:
        self._path = path
        self._folders = [GetStat(place) for place in folders_to(path)]
        self._left, self._above, self.below = Remains(path), LookAbove(above, path), LookBelow()
        # The format is looked for last: a creation that is going on makes it before anything that counts as left.
        below = [step.below(path) for step in self.below.steps]
        self.steps: list[Step] = [*self._folders, *self._left.steps, *self._above.steps, *below]

    @property
    def has_root(self) -> bool:
        """Whether the folder that all paths count from is there."""
        return self._folders[0].result is not None

    @property
    def is_vacant(self) -> bool:
        """Whether nothing is in the place."""
        return bool(self._path) and self._folders[-1].result is None

    def describe(self) -> str:
        """What lies there, for a message; empty where that is nothing."""
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
        own = [join_path(self._path, name) for name in FOLDERS if name not in self._names]
        return [*(each.path for each in self._folders[1:] if each.result is None), *own]

    def _file(self) -> str | None:
        found = [(each.path, each.result) for each in self._folders[1:]]
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
        """Whether it has a repository's format."""
        return is_ours(self._line.result or b"")

    @property
    def others(self) -> list[str]:
        """The names of what belongs to no repository."""
        # An empty folder may be what a loss of power left of the format.
        ours = NAMES if self.is_marked or self._in_format.result == [] else NAMES - {FORMAT}
        return [name for name in self.names.result or () if name not in ours]


class Remains:
    """Where there is no format: what says that there was a repository. It is looked at in one trip.

    No repository is ever made over one: its packs may be all there is. An index says nothing that its pack does not.
    """

    def __init__(self, path: str) -> None:
        self._kept = {name: ListDirectory(join_path(path, name)) for name in (PACKS, LOG)}
        self.steps: list[Step] = [*self._kept.values()]

    @property
    def found(self) -> str | None:
        """What that is, once it was looked at; None where nothing says so."""
        first = record_path(1).partition("/")[2]  # It says nothing, and a creation that was cut short leaves it.
        kept = [
            folder
            for folder, each in self._kept.items()
            if any(name != first and not name.endswith(DERIVED) for name in each.result or ())
        ]
        return f"{kept[0]!r} files and no {FORMAT!r}" if kept else None
