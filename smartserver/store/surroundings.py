"""What is in the place of a repository, in the folders above it and below it: looked at before one is made there."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from smartserver.errors import InvalidPath, NestedRepository, Unsupported
from smartserver.store.document import decode_root
from smartserver.store.format import FOREIGN, FORMAT, MADE_BESIDE, ROOT, foreign_in, is_ours
from smartserver.store.swap import RootFile
from transports import steps
from transports.base import EntryKind, Step, Transport
from transports.errors import CodedError, FileExists, NoSuchFile, NotADirectory, TransportError

LOOKED_AT = 100
"""Folders in which a repository is looked for that a message would name: a store behind a link takes two trips each."""


class Surroundings:
    """What is in the place of a repository and in the folders above it, and the folder beside it that claims the place:
    all in one go, where the folder above is there."""

    def __init__(self, above: Transport, path: str, claim: str) -> None:
        """`claim`: the folder beside the place."""
        self.claim = claim
        self.claimed = False
        """Whether that folder was made."""
        self.free = False
        """Whether nothing is in the place."""
        self._above, self._path = above, path
        *self._places, self._own = folders_to(path)
        self._stats = [steps.GetStat(each) for each in self._places]
        self._siblings = steps.ListDirectory(self._places[-1])
        self._marks = [RepositoryMarkers(each, foreign=True) for each in self._places]

    def look(self) -> None:
        """Look, make the claim, and look again for repositories above."""
        place = steps.GetStat(self._own)
        wrong = self._make_claim([place, *self._stats, *steps_of(self._marks), self._siblings])
        self.free = place.result is None
        if wrong is not None and self.free and not self.missing:
            self.check()
            raise wrong

    @property
    def missing(self) -> list[str]:
        """The folders above that were not there."""
        return [each.path for each in self._stats if each.path and each.result is None]

    @property
    def left(self) -> list[str]:
        """What was being made beside the place before, or was left."""
        names = [name for name in self._siblings.result or () if name.startswith(MADE_BESIDE)]
        return [join_path(self._places[-1], name) for name in names]

    def make_claim(self, parent: str) -> bool:
        """Make the folder above the place, where `parent` names one that was missing, then the claim, and look again;
        whether it made the folder above."""
        wrong = self._make_claim([steps.MakeDirectory(parent)] if parent else [])
        made = not isinstance(wrong, FileExists)
        if not made:  # Somebody else has made the folder above.
            wrong = self._make_claim([])
        if wrong is not None:
            raise wrong
        return made

    def _make_claim(self, first: Sequence[Step]) -> TransportError | None:
        """Do these steps, make the claim, and look which repositories are above by now. Where the claim cannot be made
        that is given, and what was known before holds."""
        marks = [RepositoryMarkers(each, foreign=True) for each in self._places]
        wrong: TransportError | None = None
        try:
            self._above.perform([*first, steps.MakeDirectory(self.claim), *steps_of(marks)])
        except TransportError as failed:
            if any(not _is_done(step) for step in first):
                raise
            wrong = failed
        else:
            self.claimed, self._marks = True, marks
        read_marks(self._above, self._marks)
        return wrong

    def check(self) -> None:
        """Refuse the place.

        Raises:
            NestedRepository, InvalidPath: a folder above it is a repository, or is none.
        """
        _check_marks(self._above, self._path, self._marks, claimed=self.claimed)
        for place, stat in zip(self._places, self._stats, strict=True):
            if stat.result is not None and stat.result.kind is not EntryKind.DIRECTORY:
                raise InvalidPath(self._path, f"{name_of(place)} is a file")


def check_above(above: Transport, path: str) -> None:
    """Refuse a place in a repository, or in what another tool keeps.

    Raises:
        NestedRepository, InvalidPath: it lies in one.
    """
    found = [RepositoryMarkers(place, foreign=True) for place in folders_to(path)[:-1]]
    above.perform(steps_of(found))
    read_marks(above, found)
    _check_marks(above, path, found, claimed=True)


def _check_marks(above: Transport, path: str, found: Sequence[RepositoryMarkers], *, claimed: bool) -> None:
    """`claimed`: a folder was made below those places, so that what a tombstone has become by now counts."""
    for marks in found:
        if marks.live or (claimed and marks.tombstone and is_recreated(above, marks.place, path)):
            raise NestedRepository(path, marks.place)
        if marks.foreign is not None:
            raise InvalidPath(path, f"{name_of(marks.place)} is {marks.foreign}: nothing is made inside it")


class RepositoryMarkers:
    """What tells a repository: `format` and `root`, two files, the first with our line; others may be called so."""

    def __init__(self, place: str, *, foreign: bool = False) -> None:
        """`foreign`: what tells another tool's repository, too. Whatever the store's own folder is, is served."""
        self.place = place
        self._files = [steps.GetStat(join_path(place, FORMAT)), steps.GetStat(join_path(place, ROOT))]
        self._foreign = {name: steps.GetStat(join_path(place, name)) for name in FOREIGN if foreign and place}
        self.steps: list[Step] = [*self._files, *self._foreign.values()]
        self._line, self._root = steps.Get(join_path(place, FORMAT)), steps.Get(join_path(place, ROOT))

    @property
    def reads(self) -> list[Step]:
        """What is to be read once these steps were performed; nothing where there is no repository."""
        return [self._line, self._root] if all(map(is_file, self._files)) else []

    @property
    def live(self) -> bool:
        """Whether a repository is there, once that was read."""
        return self._is_ours and is_live(self._root.content)

    @property
    def tombstone(self) -> bool:
        """Whether a tombstone is there, once that was read."""
        return self._is_ours and not is_live(self._root.content)

    @property
    def foreign(self) -> str | None:
        """What another tool keeps there."""
        return foreign_in([name for name, each in self._foreign.items() if each.result is not None])

    @property
    def _is_ours(self) -> bool:
        return bool(self.reads) and self._root.result is not None and is_ours(self._line.result or b"")


def steps_of(marks: Sequence[RepositoryMarkers]) -> list[Step]:
    """What looks at all of them."""
    return [step for each in marks for step in each.steps]


def read_marks(above: Transport, marks: Sequence[RepositoryMarkers]) -> None:
    """Read what was not read before of the files of those that may be repositories."""
    reads = [step for each in marks for step in each.reads if not _is_done(step)]
    if reads:
        above.perform(reads)


def _is_done(step: Step) -> bool:
    """Whether a step that asks was performed; of one that changes something nothing is known."""
    try:
        _ = step.result if isinstance(step, steps.Query) else None
    except LookupError:
        return False
    return True


def is_recreated(above: Transport, place: str, path: str) -> bool:
    """Whether a tombstone in a folder above has become a repository: asked under its lock, which a creation there has
    from its look for what is below it until its root is swapped. `path`: of the repository that is made.

    Raises:
        InvalidPath: a store without locks of files does not tell.
    """
    try:
        with RootFile(above, place).locked() as held:
            return held.root is not None and is_live(held.root)
    except Unsupported:
        why = "was a repository (swap=file), and whether it is made again now cannot be told over this link"
        raise InvalidPath(path, f"{name_of(place)} {why}") from None
    except (NoSuchFile, NotADirectory):
        return False


def join_path(place: str, name: str) -> str:
    """The path of what has that name in a folder."""
    return f"{place}/{name}" if place else name


def folders_to(path: str) -> list[str]:
    """The folders on the way to the repository's, the store's own first, and its own."""
    parts = path.split("/") if path else []
    return ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]


def name_of(place: str) -> str:
    """A folder on the way, in a message that has the whole path besides, as its user says it."""
    return repr(place.rpartition("/")[2]) if place else "the served folder"


def file_in_the_way(above: Transport, path: str) -> str | None:
    """The first of the places that is there and is no folder."""
    for place in folders_to(path)[1:]:
        try:
            if above.stat(place).kind is not EntryKind.DIRECTORY:
                return place
        except NoSuchFile:
            break
    return None


def holds_repository(above: Transport, place: str) -> bool:
    """Whether a repository is there: a deleted one is none, one whose root cannot be read is one."""
    marks = RepositoryMarkers(place)
    above.perform(marks.steps)
    read_marks(above, [marks])
    return marks.live


def repository_below(above: Transport, place: str) -> str | None:
    """The first repository that is found at or below a place; a message needs one, so not every folder is looked at."""
    todo = [place]
    for _ in range(LOOKED_AT):
        if not todo:
            break
        at = todo.pop(0)
        if holds_repository(above, at):
            return at
        with contextlib.suppress(TransportError):
            todo += [join_path(at, name) for name in above.list_directory(at)]
    return None


def is_file(asked: steps.GetStat) -> bool:
    """Whether a file was found."""
    return asked.result is not None and asked.result.kind is EntryKind.FILE


def is_live(root: bytes) -> bool:
    """Whether a root is a repository's that is not deleted; one that cannot be read may be."""
    try:
        return not decode_root(root).deleted
    except CodedError:
        return True
