"""The making of a repository: where it may be made, its folders, and how it comes to be there.

What is there already is never written over. A `folder` repository is made beside its place, whole, and renamed to it:
who looks sees nothing or all of it. Where the store's own folder is the place, or a folder is there already, and of a
`file` repository, a tombstone holds the place first. No pack, table or log file is ever there without a root: so what a
creation leaves that is cut short may be made anew, and what a repository leaves that lost its root may not.

No repository lies inside another. Two creations at once, of `a` and of `a/b`, may be in two processes or on two ways to
the store, so no lock in memory helps. The rule is: each first leaves a trace, then looks for the other one.

- The inner creation first makes a folder below `a`: `a/b`, or `a/.smartserver-...` where it is made beside its place.
  Then it looks for a repository in each folder above. It gets its root after that.
- The outer creation of a `file` repository, or in a folder that is there, first puts a tombstone in `a`. Later, under
  the lock of `a`, it looks for anything below `a` that is not its own, and swaps the root under the same lock.
- The outer creation beside its place is one rename, which the store refuses where `a` is a folder that is not empty.

Why one of them always sees the other: either the folder of the inner creation is there when the outer one looks (or
renames), which is refused then. Or the outer one looked before, and its tombstone was there before that. So the inner
creation, which looks after it has made its folder, finds a root in `a`. A live root refuses it. Where it finds a
tombstone, it waits for the lock of `a` and reads the root again: by then the outer creation has swapped its root, which
is seen, or it has not looked yet, and will see the folder. (Folders above the store's own are not looked at again: an
outer creation there sees the store's own folder.) Not all of several creations are refused: the innermost is refused
only by a live repository.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from smartserver.errors import InvalidPath, NestedRepository, OutcomeUnknown, Unsupported
from smartserver.records.model import Kind
from smartserver.store.document import Root, decode_root, encode_root
from smartserver.store.format import (
    FOREIGN,
    FORMAT,
    INCOMING,
    LOCK,
    LOG,
    MADE_BESIDE,
    NAMES,
    PACKS,
    ROOT,
    TABLES,
    TEMPORARY,
    Discipline,
    foreign_in,
    is_ours,
    recognise,
)
from smartserver.store.swap import RootFile
from transports import steps
from transports.base import EntryKind, Transport
from transports.errors import (
    CodedError,
    DirectoryNotEmpty,
    FileExists,
    NoSuchFile,
    NotADirectory,
    TransportError,
    TransportFailed,
)
from transports.steps import Step

TRIES = 8
"""Times a creation begins anew because one that was given up took its folders away."""
LOOKED_AT = 100
"""Folders in which a repository is looked for that a message would name: a store behind a link takes two trips each."""
BESIDE_KEPT = 24 * 3600
"""Seconds what was made beside a place and not renamed to it is kept: its maker may be at it."""


class Creation:
    """The making of one repository; nothing is done before it is asked for.

    Beside its place: `prepare`, what fills the folder `home`, `finish`. In its place: `prepare` and `hold_place`, then
    the swap is the caller's. Or `undo`.
    """

    def __init__(self, file: RootFile) -> None:
        self._file = file
        self._made: list[str] = []
        self._beside = ""
        """Where it is made, if that is beside its place and was begun."""
        self._unmade: list[Step] = []
        """What makes it there, where that was not done yet."""
        self._left: Sequence[str] = ()
        self._refused = False
        """Whether its place was taken when it was finished: what is made there now is made in it."""
        self._surroundings: _Surroundings | None = None
        self._gives_up = False
        """Whether something is below its place, so that a tombstone which only holds the place must go."""

    @property
    def home(self) -> str:
        """Where the folder is that becomes the repository's, or is it."""
        return self._beside or self._file.path

    def beside(self) -> bool:
        """Whether it is made beside its place: then its folder is there, and it was looked what is around it, in one
        trip, unless a folder above it is missing.

        Raises:
            TransportError: the store failed.
        """
        if self._beside:
            return not self._refused
        if not self._file.path or self._file.new.discipline is not Discipline.FOLDER:
            return False
        self._surroundings = around = _Surroundings(self._file.above, self._file.path, self._beside_name())
        try:
            around.look()
        finally:
            if around.claimed and not around.free:
                with contextlib.suppress(CodedError):
                    self._file.above.remove_directory(around.claim)
        return around.free

    def prepare(self) -> None:
        """Make the repository's folders, all durable; half-made ones are taken over. Without a root it is none yet.

        Raises:
            NestedRepository: it would lie inside another one.
            InvalidPath: the folder holds something else, or what is left of a repository.
            TransportError: the store failed.
        """
        if not self._beside and not self.choose():
            self._prepare_in_place()
            return
        unmade, self._unmade = self._unmade, []
        if unmade:
            with self._parent_missing():
                self._file.above.perform(unmade)
            _sweep_beside(self._file.above, self._left, self._beside)

    def choose(self) -> bool:
        """Choose the name beside the place, where it is made beside it, and make what is missing above; False where it
        is made in its place.

        Raises:
            NestedRepository, InvalidPath, TransportError: as `prepare`.
        """
        surroundings = self._surroundings
        if surroundings is None and self.beside():
            surroundings = self._surroundings
        self._surroundings = None  # It is worth nothing later.
        if self._beside or surroundings is None or not surroundings.free:
            return bool(self._beside)
        if surroundings.claimed:
            self._beside = surroundings.claim
        surroundings.check()
        if not surroundings.claimed:
            *first, last = surroundings.missing or [""]
            for place in first:
                self._make(place)
            self._beside = surroundings.claim
            self._made += [last] if last else []
            if not surroundings.make_claim(last) and last:
                self._made.remove(last)
            surroundings.check()
        self._left = surroundings.left
        self._unmade = [steps.MakeDirectory(place) for place in self._folders()]
        return True

    def _beside_name(self) -> str:
        return _below(_places(self._file.path)[-2], f"{MADE_BESIDE}{self._file.randomness(8).hex()}")

    def _folders(self) -> list[str]:
        return [_below(self._beside, name) for name in self._file.new.folders]

    @contextlib.contextmanager
    def _parent_missing(self) -> Iterator[None]:
        try:
            yield
        except NoSuchFile:
            parent = _places(self._file.path)[-2]
            why = f"{_name(parent)} is a link that leads nowhere, or was taken away"
            raise InvalidPath(self._file.path, why) from None

    def _prepare_in_place(self) -> None:
        above, path, folder = self._file.above, self._file.path, self._file.folder
        places = _places(path)
        file = _file_in_the_way(above, path)
        if file is not None:
            raise InvalidPath(path, "a file is there" if file == path else f"{_name(file)} is a file")
        self._check_above()
        for place in places[1:]:
            self._make(place)
            if not above.exists(place):
                raise InvalidPath(path, f"{_name(place)} is a link that leads nowhere")
        self._check_above()  # Once more: by now a creation above sees the folder of this one.
        other = recognise(folder)
        if other is not None:
            raise InvalidPath(path, f"{other} is there")
        self.check_below()
        left = remains(folder)
        if left is not None:
            raise InvalidPath(path, f"the folder holds {left}: restore that file, or move the folder away")
        self._make_folders()
        # Also what another process made: it may have crashed before it synced.
        for place in places[::-1]:
            above.sync_directory(place)

    def _check_above(self) -> None:
        """Refuse a place in a repository, or in what another tool keeps.

        Raises:
            NestedRepository, InvalidPath, TransportError: as `prepare`.
        """
        above, path = self._file.above, self._file.path
        places = _places(path)[:-1]
        found = [_Marks(place, foreign=True) for place in places]
        above.perform(_steps_of(found))
        _read(above, found)
        for place, marks in zip(places, found, strict=True):
            if marks.live or (marks.tombstone and _lives_after_all(above, place, path)):
                raise NestedRepository(path, place)
            if marks.foreign is not None:
                raise InvalidPath(path, f"{_name(place)} is {marks.foreign}: nothing is made inside it")

    def check_below(self) -> None:
        """Refuse a folder that holds something which belongs to no repository, or another repository. Before its root
        is swapped for the tombstone that is done under the lock (`check_swap`).

        Raises:
            InvalidPath: it does.
            TransportError: the store failed.
        """
        above, path, folder = self._file.above, self._file.path, self._file.folder
        names = steps.ListDirectory("")
        folder.perform([names])
        for name in names.result or ():
            if name in (FORMAT, ROOT) and folder.stat(name).kind is not EntryKind.FILE:
                raise InvalidPath(path, f"the folder holds {name!r}, which belongs to no repository")
            if name not in NAMES and not name.startswith(TEMPORARY):
                below = _repository_below(above, _below(path, name))
                if below is not None:
                    inner = below[len(path) :].strip("/")
                    raise InvalidPath(path, f"a repository is below it at {inner!r}: none can be made above that")
                raise InvalidPath(path, f"the folder holds {name!r}, which belongs to no repository")

    def hold_place(self, vcs: str, kinds: Sequence[Kind]) -> None:
        """`prepare`, and where there is no root put an empty tombstone, durably: only then may there be packs.

        Who finds a root, be it a tombstone, has waited for the one who wrote it to sync it.

        Raises:
            NestedRepository, InvalidPath: as `prepare`.
            CorruptFile: a root is there, and damaged.
            Locked: another writer holds the lock and does not let go of it.
            TransportError: the store failed; there is no repository, as before.
        """
        for _ in range(TRIES):
            self._prepare_in_place()
            with contextlib.suppress(NoSuchFile, NotADirectory), self._file.locked() as held:
                self._make_folders()  # Who gave up a creation of it took them away meanwhile.
                self._file.begin(held, vcs, kinds)
                self._made.clear()
                return
        raise TransportFailed(self._file.path, f"its folders were taken away {TRIES} times while it was made")

    def finish(self, root: Root, files: Sequence[tuple[str, bytes]], first: Sequence[Step] = ()) -> bool:
        """Give what is made beside its place a root and its files, and the name that was wanted. False where something
        has that name by now: nothing is changed by then. `first`: what is done in `home` before, in the same trip.

        Raises:
            LimitExceeded: the root takes more than 64 KiB.
            OutcomeUnknown: it may be there now.
            TransportError: the store failed; there is no repository, as before.
        """
        above, path, beside = self._file.above, self._file.path, self._beside
        content = encode_root(root)
        whole = [(FORMAT, self._file.new.line()), *files, (ROOT, content)]
        puts = [steps.Put(_below(beside, name), each) for name, each in whole]
        syncs = [steps.SyncDirectory(place) for place in (*self._folders(), beside)]
        unmade, self._unmade = self._unmade, []
        name = [steps.Rename(beside, path), *[steps.SyncDirectory(place) for place in _places(path)[-2::-1]]]
        try:
            with self._parent_missing():
                above.perform([*unmade, *first, *puts, *syncs, *name])
        except TransportError as wrong:
            self._explain(wrong, content)
            self._refused = True
            return False
        except CodedError as wrong:
            if not isinstance(wrong, OutcomeUnknown):  # The request was refused, and no step of it done.
                self.leave()
            raise
        self._made, self._beside = [], ""
        if unmade:
            _sweep_beside(above, self._left, path)
        return True

    def _explain(self, wrong: TransportError, content: bytes) -> None:
        """What it means that it was not finished; nothing is raised where something else is in the place."""
        above, path = self._file.above, self._file.path
        named = str(getattr(wrong, "path", ""))
        if f"{self._beside}/" in named:  # What fails in there comes before the rename.
            raise wrong
        there = steps.Get(_below(path, ROOT))
        try:
            above.perform([there])
        except TransportError as also:
            self._made, self._beside = [], ""
            raise OutcomeUnknown(f"{wrong}; looking for the new repository failed, too: {also}") from wrong
        taken = isinstance(wrong, DirectoryNotEmpty | FileExists) and (named == path or named.endswith(f"/{path}"))
        if there.result != content and (taken or there.result is not None):
            return
        if there.result == content or isinstance(wrong, TransportFailed):
            self._made, self._beside = [], ""  # It may be on its way still: a sweep does the rest.
            raise OutcomeUnknown(f"putting the new repository in place failed: {wrong}") from wrong
        raise wrong

    def check_swap(self) -> None:
        """`check_below`, under the lock, before a root is swapped for a tombstone.

        Raises:
            InvalidPath, TransportError: as that.
        """
        try:
            self.check_below()
        except InvalidPath:
            self._gives_up = True
            raise

    def give_up_place(self) -> None:
        """After `check_swap` refused: take away a tombstone that only held the place, with its empty folders. It would
        hide what is below it. A deleted repository stays."""
        if not self._gives_up:
            return
        self._gives_up = False
        file = self._file
        with contextlib.suppress(CodedError, FileNotFoundError):
            with file.locked() as held:
                if held.root is None or not _only_holds_place(held.root):
                    return
                file.folder.delete(ROOT)
                file.folder.delete(FORMAT)
            self._made = [_below(file.path, name) for name in file.new.folders]
        self.undo()

    def leave(self) -> None:
        """Take away what was begun beside the place; nothing where it has its name."""
        beside, self._beside = self._beside, ""
        with contextlib.suppress(CodedError):
            if beside:
                remove_tree(self._file.above, beside)

    def undo(self) -> None:
        """Take away the folders that were made here, as far as nobody uses them; undoing twice is harmless."""
        self.leave()
        made, self._made = self._made, []
        own = [_below(self._file.path, name) for name in self._file.new.folders]
        with contextlib.suppress(TransportError):
            if not made or (set(own) & set(made) and not self._undo_in_place([each for each in own if each in made])):
                return
            for place in sorted(set(made) - set(own), key=len, reverse=True):
                self._file.above.remove_directory(place)

    def _undo_in_place(self, own: Sequence[str]) -> bool:
        """Take away the folders in the repository's; whether nobody uses them."""
        folder, lock = self._file.folder, _below(self._file.path, LOCK)
        with self._file.try_locked() as mine:
            if not mine or folder.exists(FORMAT):
                return False
            # The quarantines' folder first: it is empty only while nobody else is making this repository.
            incoming = _below(self._file.path, INCOMING)
            for place in sorted(set(own) - {lock}, key=lambda place: place != incoming):
                self._file.above.remove_directory(place)
            if not self._file.in_folder():
                folder.delete(LOCK)
        if self._file.in_folder():
            self._file.above.remove_directory(lock)
        return True

    def _make_folders(self) -> None:
        for name in self._file.new.folders:
            self._make(_below(self._file.path, name))

    def _make(self, place: str) -> None:
        with contextlib.suppress(FileExists):
            self._file.above.make_directory(place)
            self._made.append(place)


class _Surroundings:
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
        *self._places, self._own = _places(path)
        self._stats = [steps.GetStat(each) for each in self._places]
        self._siblings = steps.ListDirectory(self._places[-1])
        self._marks = [_Marks(each, foreign=True) for each in self._places]

    def look(self) -> None:
        """Look, make the claim, and look again for repositories above.

        Raises:
            TransportError: the store failed.
        """
        place = steps.GetStat(self._own)
        wrong = self._make_claim([place, *self._stats, *_steps_of(self._marks), self._siblings])
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
        return [_below(self._places[-1], name) for name in names]

    def make_claim(self, parent: str) -> bool:
        """Make the folder above the place, where `parent` names one that was missing, then the claim, and look again;
        whether it made the folder above.

        Raises:
            TransportError: the store failed.
        """
        wrong = self._make_claim([steps.MakeDirectory(parent)] if parent else [])
        made = not isinstance(wrong, FileExists)
        if not made:  # Somebody else has made the folder above.
            wrong = self._make_claim([])
        if wrong is not None:
            raise wrong
        return made

    def _make_claim(self, first: Sequence[Step]) -> TransportError | None:
        """Do these steps, make the claim, and look which repositories are above by now. Where the claim cannot be made
        that is given, and what was known before holds.

        Raises:
            TransportError: a step that asks failed.
        """
        marks = [_Marks(each, foreign=True) for each in self._places]
        wrong: TransportError | None = None
        try:
            self._above.perform([*first, steps.MakeDirectory(self.claim), *_steps_of(marks)])
        except TransportError as failed:
            if any(not _is_done(step) for step in first):
                raise
            wrong = failed
        else:
            self.claimed, self._marks = True, marks
        _read(self._above, self._marks)
        return wrong

    def check(self) -> None:
        """Refuse the place.

        Raises:
            NestedRepository, InvalidPath: a folder above it is a repository, or is none.
            TransportError: the store failed.
        """
        for number, place in enumerate(self._places):
            stat = self._stats[number].result
            if stat is not None and stat.kind is not EntryKind.DIRECTORY:
                raise InvalidPath(self._path, f"{_name(place)} is a file")
            marks = self._marks[number]
            if marks.live or (self.claimed and marks.tombstone and _lives_after_all(self._above, place, self._path)):
                raise NestedRepository(self._path, place)
            if marks.foreign is not None:
                raise InvalidPath(self._path, f"{_name(place)} is {marks.foreign}: nothing is made inside it")


class _Marks:
    """What tells a repository: `format` and `root`, two files, the first with our line; others may be called so."""

    def __init__(self, place: str, *, foreign: bool = False) -> None:
        """`foreign`: what tells another tool's repository, too. Whatever the store's own folder is, is served."""
        self._files = [steps.GetStat(_below(place, FORMAT)), steps.GetStat(_below(place, ROOT))]
        self._foreign = {name: steps.GetStat(_below(place, name)) for name in FOREIGN if foreign and place}
        self.steps: list[Step] = [*self._files, *self._foreign.values()]
        self._line, self._root = steps.Get(_below(place, FORMAT)), steps.Get(_below(place, ROOT))

    @property
    def reads(self) -> list[Step]:
        """What is to be read once these steps were performed; nothing where there is no repository."""
        return [self._line, self._root] if all(map(_is_file, self._files)) else []

    @property
    def live(self) -> bool:
        """Whether a repository is there, once that was read."""
        return self._is_ours and _is_live(self._root.content)

    @property
    def tombstone(self) -> bool:
        """Whether a tombstone is there, once that was read."""
        return self._is_ours and not _is_live(self._root.content)

    @property
    def foreign(self) -> str | None:
        """What another tool keeps there."""
        return foreign_in([name for name, each in self._foreign.items() if each.result is not None])

    @property
    def _is_ours(self) -> bool:
        return bool(self.reads) and self._root.result is not None and is_ours(self._line.result or b"")


def _steps_of(marks: Sequence[_Marks]) -> list[Step]:
    return [step for each in marks for step in each.steps]


def _read(above: Transport, marks: Sequence[_Marks]) -> None:
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


def _lives_after_all(above: Transport, place: str, path: str) -> bool:
    """Whether a tombstone in a folder above has become a repository: asked under its lock, which a creation there has
    from its look for what is below it until its root is swapped. `path`: of the repository that is made.

    Raises:
        InvalidPath: a store without locks of files does not tell.
        TransportError: the store failed.
    """
    try:
        with RootFile(above, place).locked() as held:
            return held.root is not None and _is_live(held.root)
    except Unsupported:
        why = "was a repository (swap=file), and whether it is made again now cannot be told over this link"
        raise InvalidPath(path, f"{_name(place)} {why}") from None
    except (NoSuchFile, NotADirectory):
        return False


def remove_tree(transport: Transport, path: str) -> None:
    """Delete a folder with all that is in it.

    Raises:
        TransportError: the store failed; some of it may be there still.
    """
    names = steps.ListDirectory(path)
    transport.perform([names])
    inside = [steps.GetStat(_below(path, name)) for name in names.result or ()]
    transport.perform(inside)
    here: list[Step] = []
    for each in inside:
        if each.result is not None and each.result.kind is EntryKind.DIRECTORY:
            remove_tree(transport, each.path)
        else:
            here.append(steps.Delete(each.path))
    transport.perform([*here, steps.RemoveDirectory(path)])


def _sweep_beside(above: Transport, left: Sequence[str], mine: str) -> None:
    """Delete what others began beside a place and have left long ago, by the store's clock."""
    if not left:
        return
    with contextlib.suppress(TransportError):
        stats = [steps.GetStat(each) for each in (mine, *left)]
        above.perform(stats)
        now, *others = stats
        for each in others:
            if now.result and each.result and now.result.modified - each.result.modified >= BESIDE_KEPT:
                remove_tree(above, each.path)


def _below(place: str, name: str) -> str:
    return f"{place}/{name}" if place else name


class Remains(NamedTuple):
    """What is left of a repository."""

    found: str
    lost: str
    """The name of the file that is not there."""

    def __str__(self) -> str:
        return f"{self.found} and no {self.lost!r}"


def instead(above: Transport, path: str) -> str:
    """What lies where no repository is, for a message; empty where that is nothing, or cannot be told."""
    places = [steps.GetStat(place) for place in _places(path)[1:]]
    left, others = _Left(path), [steps.GetStat(_below(path, name)) for name in FOREIGN]
    try:
        above.perform([*places, *left.steps, *others])
    except TransportError:
        return ""
    file = next((each.path for each in places if each.result and each.result.kind is not EntryKind.DIRECTORY), None)
    if file is not None:
        return "a file" if file == path else f"a file, {_name(file)}, above it"
    foreign = foreign_in([name for name, each in zip(FOREIGN, others, strict=True) if each.result is not None])
    return foreign or (f"what is left of one: {left.found}" if left.found is not None else "")


def remains(folder: Transport) -> Remains | None:
    """What says that there was a repository, which has lost its root or its format; None where nothing does.

    No repository is ever made over one: its packs may be all there is.

    Raises:
        TransportError: the store failed.
    """
    left = _Left("")
    folder.perform(left.steps)
    return left.found


class _Left:
    """What is looked at, in one go, to tell what is left of a repository."""

    def __init__(self, path: str) -> None:
        # Listed before the root is looked for: a creation that is going on writes it first.
        self._kept = {name: steps.ListDirectory(_below(path, name)) for name in (PACKS, LOG, TABLES)}
        self._root, self._format = steps.GetStat(_below(path, ROOT)), steps.GetStat(_below(path, FORMAT))
        self.steps: list[Step] = [*self._kept.values(), self._root, self._format]

    @property
    def found(self) -> Remains | None:
        """What that is, once it was looked at."""
        if _is_file(self._root):
            # With a format it is a whole one, some of whose folders were taken away.
            return None if self._format.result is not None else Remains("a root", FORMAT)
        kept = next((name for name, each in self._kept.items() if each.result), None)
        return None if kept is None else Remains(f"{kept!r} files", ROOT)


def _places(path: str) -> list[str]:
    """The folders on the way to the repository's, the store's own first, and its own."""
    parts = path.split("/") if path else []
    return ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]


def _name(place: str) -> str:
    """A folder on the way, in a message that has the whole path besides, as its user says it."""
    return repr(place.rpartition("/")[2]) if place else "the served folder"


def _file_in_the_way(above: Transport, path: str) -> str | None:
    """The first of the places that is there and is no folder."""
    for place in _places(path)[1:]:
        try:
            if above.stat(place).kind is not EntryKind.DIRECTORY:
                return place
        except NoSuchFile:
            break
    return None


def holds_repository(above: Transport, place: str) -> bool:
    """Whether a repository is there: a deleted one is none, one whose root cannot be read is one."""
    marks = _Marks(place)
    above.perform(marks.steps)
    _read(above, [marks])
    return marks.live


def _repository_below(above: Transport, place: str) -> str | None:
    """The first repository that is found at or below a place; a message needs one, so not every folder is looked at."""
    todo = [place]
    for _ in range(LOOKED_AT):
        if not todo:
            break
        at = todo.pop(0)
        if holds_repository(above, at):
            return at
        with contextlib.suppress(TransportError):
            todo += [_below(at, name) for name in above.list_directory(at)]
    return None


def _is_file(asked: steps.GetStat) -> bool:
    return asked.result is not None and asked.result.kind is EntryKind.FILE


def _only_holds_place(root: bytes) -> bool:
    """Whether a root is the tombstone of a creation, and never was a repository's."""
    found = decode_root(root)
    return found.deleted and not (found.log or found.log_files or found.log_since)


def _is_live(root: bytes) -> bool:
    try:
        return not decode_root(root).deleted
    except CodedError:
        return True
