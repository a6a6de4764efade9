"""What lies where no repository is: what is left of one, which is never written over, or what another tool keeps."""

from __future__ import annotations

from typing import NamedTuple

from smartserver.store.format import FOREIGN, FORMAT, LOG, PACKS, ROOT, TABLES, foreign_in
from smartserver.store.surroundings import folders_to, is_file, join_path, name_of
from transports import steps
from transports.base import EntryKind, Step, Transport
from transports.errors import TransportError


class Remains(NamedTuple):
    """What is left of a repository."""

    found: str
    lost: str
    """The name of the file that is not there."""

    def __str__(self) -> str:
        return f"{self.found} and no {self.lost!r}"


def describe_place(above: Transport, path: str) -> str:
    """What lies where no repository is, for a message; empty where that is nothing, or cannot be told."""
    places = [steps.GetStat(place) for place in folders_to(path)[1:]]
    left, others = _Left(path), [steps.GetStat(join_path(path, name)) for name in FOREIGN]
    try:
        above.perform([*places, *left.steps, *others])
    except TransportError:
        return ""
    file = next((each.path for each in places if each.result and each.result.kind is not EntryKind.DIRECTORY), None)
    if file is not None:
        return "a file" if file == path else f"a file, {name_of(file)}, above it"
    foreign = foreign_in([name for name, each in zip(FOREIGN, others, strict=True) if each.result is not None])
    return foreign or (f"what is left of one: {left.found}" if left.found is not None else "")


def remains(folder: Transport) -> Remains | None:
    """What says that there was a repository, which has lost its root or its format; None where nothing does.

    No repository is ever made over one: its packs may be all there is.
    """
    left = _Left("")
    folder.perform(left.steps)
    return left.found


class _Left:
    """What is looked at, in one go, to tell what is left of a repository."""

    def __init__(self, path: str) -> None:
        # Listed before the root is looked for: a creation that is going on writes it first.
        self._kept = {name: steps.ListDirectory(join_path(path, name)) for name in (PACKS, LOG, TABLES)}
        self._root, self._format = steps.GetStat(join_path(path, ROOT)), steps.GetStat(join_path(path, FORMAT))
        self.steps: list[Step] = [*self._kept.values(), self._root, self._format]

    @property
    def found(self) -> Remains | None:
        """What that is, once it was looked at."""
        if is_file(self._root):
            # With a format it is a whole one, some of whose folders were taken away.
            return None if self._format.result is not None else Remains("a root", FORMAT)
        kept = next((name for name, each in self._kept.items() if each.result), None)
        return None if kept is None else Remains(f"{kept!r} files", ROOT)
