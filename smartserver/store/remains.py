"""What lies where no repository is: what is left of one, which is never written over, or what another tool keeps."""

from __future__ import annotations

from smartserver.store.format import FOREIGN, FORMAT, LOG, PACKS, foreign_in
from smartserver.store.record import record_path
from smartserver.store.surroundings import folders_to, join_path, name_of
from transports import steps
from transports.base import EntryKind, Step, Transport
from transports.errors import TransportError


def describe_place(above: Transport, path: str) -> str:
    """What lies where no repository is, for a message; empty where that is nothing, or cannot be told."""
    places = [steps.GetStat(place) for place in folders_to(path)[1:]]
    left, others = Remains(path), [steps.GetStat(join_path(path, name)) for name in FOREIGN]
    try:
        above.perform([*places, *left.steps, *others])
    except TransportError:
        return ""
    file = next((each.path for each in places if each.result and each.result.kind is not EntryKind.DIRECTORY), None)
    if file is not None:
        return "a file" if file == path else f"a file, {name_of(file)}, above it"
    foreign = foreign_in([name for name, each in zip(FOREIGN, others, strict=True) if each.result is not None])
    return foreign or (f"what is left of one: {left.found}" if left.found is not None else "")


class Remains:
    """What says that there was a repository, which has lost its format; looked at in one trip.

    No repository is ever made over one: its packs may be all there is.
    """

    def __init__(self, path: str) -> None:
        # Listed before the format is looked for: a creation that is going on makes that first.
        self._kept = {name: steps.ListDirectory(join_path(path, name)) for name in (PACKS, LOG)}
        self._format = steps.GetStat(join_path(path, FORMAT))
        self.steps: list[Step] = [*self._kept.values(), self._format]

    @property
    def found(self) -> str | None:
        """What that is, once it was looked at; None where nothing says so."""
        if self._format.result is not None:
            return None
        first = record_path(1).partition("/")[2]  # It says nothing, and a creation that was cut short leaves it.
        kept = [name for name, each in self._kept.items() if set(each.result or ()) - {first}]
        return f"{kept[0]!r} files and no {FORMAT!r}" if kept else None
