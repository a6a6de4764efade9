"""The making of a repository: where it may be made, its folders, and how it comes to be there.

What is there already is never written over. A `folder` repository is made beside its place, whole, and renamed to it:
who looks sees nothing or all of it. Where the store's own folder is the place, or a folder is there already, and of a
`file` repository, a tombstone holds the place first. No pack, table or log file is ever there without a root: so what a
creation leaves that is cut short may be made again, and what a repository leaves that lost its root may not.

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

from smartserver.errors import InvalidPath, OutcomeUnknown
from smartserver.records.model import Kind
from smartserver.store.document import Root, decode_root, encode_root
from smartserver.store.format import (
    FORMAT,
    INCOMING,
    LOCK,
    MADE_BESIDE,
    NAMES,
    ROOT,
    TEMPORARY,
    recognise,
)
from smartserver.store.remains import remains
from smartserver.store.surroundings import (
    Surroundings,
    check_above,
    file_in_the_way,
    folders_to,
    join_path,
    name_of,
    repository_below,
)
from smartserver.store.swap import RootFile
from transports import steps
from transports.base import EntryKind, Step, Transport
from transports.errors import (
    CodedError,
    DirectoryNotEmpty,
    FileExists,
    NoSuchFile,
    NotADirectory,
    TransportError,
    TransportFailed,
)

TRIES = 8
"""Times a creation begins again because one that was given up took its folders away."""
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
        self._surroundings: Surroundings | None = None
        self._gives_up = False
        """Whether something is below its place, so that a tombstone which only holds the place must go."""

    @property
    def home(self) -> str:
        """Where the folder is that becomes the repository's, or is it."""
        return self._beside or self._file.path

    def beside(self) -> bool:
        """Whether it is made beside its place: then its folder is there, and it was looked what is around it, in one
        trip, unless a folder above it is missing."""
        if self._beside:
            return not self._refused
        if not self._file.path or LOCK not in self._file.new.folders:
            return False
        name = f"{MADE_BESIDE}{self._file.randomness(8).hex()}"
        claim = join_path(folders_to(self._file.path)[-2], name)
        self._surroundings = around = Surroundings(self._file.above, self._file.path, claim)
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

    def _folders(self) -> list[str]:
        return [join_path(self._beside, name) for name in self._file.new.folders]

    @contextlib.contextmanager
    def _parent_missing(self) -> Iterator[None]:
        try:
            yield
        except NoSuchFile:
            parent = folders_to(self._file.path)[-2]
            why = f"{name_of(parent)} is a link that leads nowhere, or was taken away"
            raise InvalidPath(self._file.path, why) from None

    def _prepare_in_place(self) -> None:
        above, path, folder = self._file.above, self._file.path, self._file.folder
        places = folders_to(path)
        file = file_in_the_way(above, path)
        if file is not None:
            raise InvalidPath(path, "a file is there" if file == path else f"{name_of(file)} is a file")
        check_above(above, path)
        for place in places[1:]:
            self._make(place)
            if not above.exists(place):
                raise InvalidPath(path, f"{name_of(place)} is a link that leads nowhere")
        check_above(above, path)  # Once more: by now a creation above sees the folder of this one.
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

    def check_below(self) -> None:
        """Refuse a folder that holds something which belongs to no repository, or another repository. Before its root
        is swapped for the tombstone that is done under the lock (`check_swap`).

        Raises:
            InvalidPath: it does.
        """
        above, path, folder = self._file.above, self._file.path, self._file.folder
        names = steps.ListDirectory("")
        folder.perform([names])
        for name in names.result or ():
            if name in (FORMAT, ROOT) and folder.stat(name).kind is not EntryKind.FILE:
                raise InvalidPath(path, f"the folder holds {name!r}, which belongs to no repository")
            if name not in NAMES and not name.startswith(TEMPORARY):
                found = repository_below(above, join_path(path, name))
                if found is not None:
                    inner = found[len(path) :].strip("/")
                    raise InvalidPath(path, f"a repository is below it at {inner!r}: none can be made above that")
                raise InvalidPath(path, f"the folder holds {name!r}, which belongs to no repository")

    def hold_place(self, vcs: str, kinds: Sequence[Kind]) -> None:
        """`prepare`, and where there is no root put an empty tombstone, durably: only then may there be packs.

        A creation that finds a root, even a tombstone, holds the lock: the writer of that root has synced it.

        Raises:
            NestedRepository, InvalidPath: as `prepare`.
            CorruptFile: a root is there, and damaged.
            Locked: another writer holds the lock and does not let go of it.
            TransportError: the store failed; there is no repository, as before.
        """
        for _ in range(TRIES):
            self._prepare_in_place()
            with contextlib.suppress(NoSuchFile, NotADirectory), self._file.locked() as held:
                self._make_folders()  # A creation that gave up may have removed them meanwhile.
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
        puts = [steps.Put(join_path(beside, name), each) for name, each in whole]
        syncs = [steps.SyncDirectory(place) for place in (*self._folders(), beside)]
        unmade, self._unmade = self._unmade, []
        name = [steps.Rename(beside, path), *[steps.SyncDirectory(place) for place in folders_to(path)[-2::-1]]]
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
        there = steps.Get(join_path(path, ROOT))
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
        """`check_below`, under the lock, before a root is swapped for a tombstone."""
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
                if held.root is None:
                    return
                found = decode_root(held.root)
                if not found.deleted or found.log or found.log_files or found.log_since:
                    return  # It is, or was, a repository's.
                file.folder.delete(ROOT)
                file.folder.delete(FORMAT)
            self._made = [join_path(file.path, name) for name in file.new.folders]
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
        own = [join_path(self._file.path, name) for name in self._file.new.folders]
        with contextlib.suppress(TransportError):
            if not made or (set(own) & set(made) and not self._undo_in_place([each for each in own if each in made])):
                return
            for place in sorted(set(made) - set(own), key=len, reverse=True):
                self._file.above.remove_directory(place)

    def _undo_in_place(self, own: Sequence[str]) -> bool:
        """Take away the folders in the repository's; whether nobody uses them."""
        folder, lock = self._file.folder, join_path(self._file.path, LOCK)
        with self._file.try_locked() as mine:
            if not mine or folder.exists(FORMAT):
                return False
            # The quarantines' folder first: it is empty only while nobody else is making this repository.
            incoming = join_path(self._file.path, INCOMING)
            for place in sorted(set(own) - {lock}, key=lambda place: place != incoming):
                self._file.above.remove_directory(place)
            if LOCK not in self._file.new.folders:
                folder.delete(LOCK)
        if LOCK in self._file.new.folders:
            self._file.above.remove_directory(lock)
        return True

    def _make_folders(self) -> None:
        for name in self._file.new.folders:
            self._make(join_path(self._file.path, name))

    def _make(self, place: str) -> None:
        with contextlib.suppress(FileExists):
            self._file.above.make_directory(place)
            self._made.append(place)


def remove_tree(transport: Transport, path: str) -> None:
    """Delete a folder with all that is in it.

    Raises:
        TransportError: the store failed; some of it may be there still.
    """
    names = steps.ListDirectory(path)
    transport.perform([names])
    inside = [steps.GetStat(join_path(path, name)) for name in names.result or ()]
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
