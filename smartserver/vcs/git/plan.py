"""Plans a push: the revisions that it must send, and the objects that each of them introduced.

The rule of this file: a commit introduces an object if no parent has it at that path. In addition, no parent may be
seen to have it at another path that the commit touches. Objects are attributed commit by commit against its own
parents, never by the order of a walk: a walk gives an object to the first commit that shows it, which another tip may
not reach.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from array import array
from binascii import hexlify, unhexlify
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import IO, Any, Final, NamedTuple, Protocol, overload

from smartserver.records.keys import ABSENT, KeyTable
from smartserver.records.model import GraphNode, Key, Parent, RevisionId, made
from smartserver.vcs.base import CannotSend, ToolFailed
from smartserver.vcs.git.format import FILE, FOLDER, LINK, ObjectFormat, canonical_mode, entry_type
from smartserver.vcs.git.objects import (
    BLOB,
    COMMIT,
    TAG,
    TREE,
    TYPE_NUMBERS,
    MissingObject,
    Reading,
    ReadingEnded,
    end,
    scratch,
)
from smartserver.vcs.git.repository import GitRepository, failure


class Revision(NamedTuple):
    """A revision to send: a commit, a tag, or a tree or blob that a ref names directly."""

    id: RevisionId
    type: int
    parents: tuple[RevisionId, ...]
    root: Key
    """The tree of a commit, the tree or blob that a tag names, or the key of a bare tree or blob; else empty."""


class Revisions(Sequence[Revision]):
    """Revisions to be sent, packed into arrays: 100 bytes each instead of 600 as objects."""

    def __init__(self, revisions: Iterable[Revision] = ()) -> None:
        self._ids = KeyTable()
        self._types = bytearray()
        self._roots = bytearray()
        self._root_ends = array("Q", (0,))
        self._parents = bytearray()
        self._parent_ends = array("Q", (0,))
        for revision in revisions:
            self.append(revision)

    def append(self, revision: Revision) -> None:
        """Add a revision that is not in the sequence yet."""
        self._ids.number(revision.id)
        self._types.append(revision.type)
        self._roots += revision.root
        self._root_ends.append(len(self._roots))
        self._parents += b"".join(revision.parents)
        self._parent_ends.append(len(self._parents))

    def __len__(self) -> int:
        return len(self._types)

    def has(self, revision: RevisionId) -> bool:
        """Tell whether the sequence has a revision of this id."""
        return revision in self._ids

    @overload
    def __getitem__(self, at: int) -> Revision: ...
    @overload
    def __getitem__(self, at: slice) -> Revisions: ...
    def __getitem__(self, at: int | slice) -> Revision | Revisions:
        if isinstance(at, slice):
            return Revisions(map(self.__getitem__, range(*at.indices(len(self)))))
        return self._revision(range(len(self))[at])

    def __iter__(self) -> Iterator[Revision]:
        return map(self._revision, range(len(self)))

    def _revision(self, at: int) -> Revision:
        key = self._ids.key(at)
        width = len(key)
        start, stop = self._parent_ends[at], self._parent_ends[at + 1]
        ids = tuple([bytes(self._parents[n : n + width]) for n in range(start, stop, width)])
        return made(Revision, (key, self._types[at], ids, self._root(at)))

    def _root(self, at: int) -> Key:
        return bytes(self._roots[self._root_ends[at] : self._root_ends[at + 1]])

    def tree_of(self, commit: RevisionId) -> Key | None:
        """Return the tree of a commit, or None if the sequence does not have the commit."""
        at = self._ids.find(commit)
        return self._root(at) if at != ABSENT and self._types[at] == COMMIT else None


class _Graph(Sequence[GraphNode]):
    """The nodes of the graph that a push announces. Each is created when it is read."""

    def __init__(self, revisions: Revisions) -> None:
        self._revisions = revisions

    def __len__(self) -> int:
        return len(self._revisions)

    @overload
    def __getitem__(self, at: int) -> GraphNode: ...
    @overload
    def __getitem__(self, at: slice) -> _Graph: ...
    def __getitem__(self, at: int | slice) -> GraphNode | _Graph:
        if isinstance(at, slice):
            return _Graph(self._revisions[at])
        return _announced(self._revisions[at])

    def __iter__(self) -> Iterator[GraphNode]:
        return map(_announced, self._revisions)


def _announced(revision: Revision) -> GraphNode:
    return made(GraphNode, (revision.id, parents_of(revision)))


class Introduced(NamedTuple):
    """An object that a revision introduced."""

    key: Key
    type: int
    path: bytes
    candidates: tuple[Key, ...]
    """Possible bases, at most two: the objects at that path in the parents, or at paths that this revision removed."""


class PathDifference(NamedTuple):
    """One path at which a commit differs from all its parents; `key` is empty if the commit removed the path."""

    path: bytes
    type: int
    key: Key
    before: tuple[tuple[int, Key], ...]
    """The type and key in each parent that has the path."""


def cannot_send(repository: GitRepository, why: Exception) -> CannotSend:
    """Return the error that refuses a push because an object is missing or damaged."""
    partial = " (a partial clone cannot push what it did not fetch)" if repository.is_partial else ""
    return CannotSend(f"cannot push: {why}{partial}")


# ---- revisions


def revisions(repository: GitRepository, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Revisions:
    """Return the revisions reachable from `tips` and not from `haves`, parents first."""
    haves = list(haves)
    known = set(haves)
    listing = Revisions()
    commits: dict[RevisionId, None] = {}
    others: list[Revision] = []
    try:
        for tip in dict.fromkeys(tips):
            _add_tip(repository, tip, known, commits, others)
    except (MissingObject, ReadingEnded, ValueError) as error:
        raise cannot_send(repository, error) from error
    if commits:
        listing = _list_commits(repository, list(commits), haves)
        cuts = [cut for cut in repository.shallow() if listing.has(cut)]
        if cuts:  # Only the server knows whether it has these commits and their ancestors.
            listing = _list_commits(repository, list(commits), [*haves, *cuts])
    for revision in others:
        listing.append(revision)
    return listing


def _add_tip(
    repository: GitRepository,
    tip: RevisionId,
    known: set[RevisionId],
    commits: dict[RevisionId, None],
    others: list[Revision],
) -> None:
    """Follow a tip through its tags. A commit is added to `commits`. Any other objects are added to `others`, inner
    tags first, and their ids to `known`."""
    tags: list[Revision] = []
    while tip not in known:
        found = repository.objects.read(tip)
        if found.type == COMMIT:
            commits[tip] = None
            break
        known.add(tip)
        if found.type != TAG:
            tags.append(Revision(tip, found.type, (), tip))
            break
        target, name = repository.format.tag(tip, found.text)
        if TYPE_NUMBERS[name] in (TREE, BLOB):
            tags.append(Revision(tip, TAG, (), target))
            break
        tags.append(Revision(tip, TAG, (target,), b""))
        tip = target
    others += reversed(tags)


def _list_commits(repository: GitRepository, tips: list[RevisionId], haves: Iterable[RevisionId]) -> Revisions:
    """Return the commits reachable from `tips` and not from `haves`, parents first.

    The repository may lack a have or an ancestor of one. Then only haves with all their ancestors end the walk.
    """
    wanted = b"".join([hexlify(key) + b"\n" for key in tips])
    known = [key for key in haves if len(key) == repository.id_length]
    try:
        return _walk(repository, wanted + _excluded(known))
    except ToolFailed:
        try:
            return _walk(repository, wanted + _excluded(repository.whole(known)))
        except ToolFailed as failed:
            cut = _UNREAD.search(failed.said)
            if cut is None or repository.is_partial:
                raise cannot_send(repository, failed) from failed
            # This happens in the quarantine of a gateway, where a client's file of shallow commits does not count.
            why = f"history is cut off: commit {cut[1]} is missing (in a shallow clone: git fetch --unshallow)"
            raise CannotSend(f"cannot push: {why}") from failed


_UNREAD: Final = re.compile("Could not read ([0-9a-f]{40,64})")
"""Git's message about a missing commit. Git never translates it."""


def _walk(repository: GitRepository, asked: bytes) -> Revisions:
    # ignore-missing must come before stdin: git reads its arguments in order.
    walk = ("rev-list", "--ignore-missing", "--topo-order", "--reverse", "--format=%T %P", "--stdin")
    found = Revisions()
    with _output(repository, asked, *walk) as output:
        for line in output:
            links = output.readline()
            if not links.endswith(b"\n"):
                break  # Git ended early, and its status says so.
            tree, *parents = links.split()
            found.append(Revision(unhexlify(line[7:-1]), COMMIT, tuple(map(unhexlify, parents)), unhexlify(tree)))
    return found


@contextlib.contextmanager
def _output(repository: GitRepository, asked: bytes, *command: str) -> Iterator[IO[bytes]]:
    # Files, not pipes: git must not wait for its input or its errors while its output is read.
    with scratch(asked) as questions, scratch() as said:
        process = repository.start(*command, stdin=questions, stdout=subprocess.PIPE, stderr=said)
        assert process.stdout is not None
        try:
            yield process.stdout
            if process.wait() != 0:
                said.seek(0)
                raise failure(command[0], process.returncode, said.read())
        finally:
            end(process)


def _excluded(keys: Iterable[RevisionId]) -> bytes:
    return b"".join([b"^" + hexlify(key) + b"\n" for key in keys])


def graph_of(plan: Revisions) -> Sequence[GraphNode]:
    """Return the graph that a push of `plan` announces."""
    return _Graph(plan)


def parents_of(revision: Revision) -> tuple[Parent, ...]:
    """Return a revision's parents as a segment has them; none of them is a ghost."""
    return tuple([Parent(parent) for parent in revision.parents])


# ---- what each revision introduced


class Finder(Protocol):
    """The native part `IntroducedObjects`, which finds and reads the objects that commits introduced. It leaves unusual
    trees and large objects to `introduced` and `GitPlan`."""

    def of(self, commit: Revision, before: Sequence[Key], /) -> tuple[Any, list[Introduced] | None]:
        """Return the records of a commit for `Job.held`, and note that they are sent; else what `settle` returns; else
        neither. `before`: the root trees of its parents."""

    def sent(self, key: Key, /) -> int | None:
        """Return the type with which an object was sent; None if it was not sent."""

    def send(self, key: Key, kind: int, /) -> None:
        """Note that an object of a type is sent."""


def introduced(
    repository: GitRepository, plan: Revisions, read: Reading, finder: Finder | None = None
) -> Iterator[tuple[Any, list[Introduced]]]:
    """Yield the objects that each revision of a plan introduced: the records for `Job.held`, or None and a list."""
    trees = _Trees(repository.format, read)
    try:
        for revision in plan:
            if revision.type != COMMIT:
                yield None, _closure(trees, revision)
                continue
            before = [_root(repository, parent, plan) for parent in revision.parents]
            held, listed = (None, None) if finder is None else finder.of(revision, before)
            if held is not None:
                yield held, []
            elif listed is not None:
                yield None, [Introduced(*each) for each in listed]
            else:
                yield None, settle(revision, before, trees.changes(revision.root, before))
    except (MissingObject, ReadingEnded, ValueError) as error:
        raise cannot_send(repository, error) from error


def _root(repository: GitRepository, commit: RevisionId, plan: Revisions) -> Key:
    root = plan.tree_of(commit)
    if root is None:
        root, _ = repository.format.commit(commit, repository.objects.read(commit).text)
    return root


def settle(revision: Revision, before: Sequence[Key], changes: Iterable[PathDifference]) -> list[Introduced]:
    """Return the objects that a commit introduced, itself first. `before`: the root trees of its parents."""
    records = [Introduced(revision.id, COMMIT, b"", revision.parents[:2])]
    if revision.root in before:
        return records
    changes = list(changes)
    here_before = set(before)
    removed = _Removed(changes)
    for change in changes:
        here_before.update([key for _, key in change.before])
    done = set()
    if revision.root not in here_before:
        done.add(revision.root)
        records.append(Introduced(revision.root, TREE, b"", tuple(dict.fromkeys(before))[:2]))
    for path, kind, key, old in changes:
        # An object that a parent has at a changed or removed path was moved, not introduced.
        if key and kind and key not in here_before and key not in done:
            done.add(key)
            candidates = tuple(dict.fromkeys([k for t, k in old if t == kind]))[:2]
            records.append(Introduced(key, kind, path, candidates or removed.sources(path, kind)))
    return records


class _Removed:
    """The objects that a commit removed, by name and by extension of their paths."""

    def __init__(self, changes: Iterable[PathDifference]) -> None:
        self._found: dict[tuple[bytes, int], dict[Key, None]] = {}
        for change in changes:
            if not change.key:
                for kind, key in dict(reversed(change.before)).items():  # The first of each type.
                    for part in _name_and_extension(change.path):
                        self._found.setdefault((part, kind), {})[key] = None

    def sources(self, path: bytes, kind: int) -> tuple[Key, ...]:
        """Return at most two objects that a new path may be an edited copy of: same name first, then same extension."""
        if not self._found:
            return ()
        named, others = [self._found.get((part, kind), {}) for part in _name_and_extension(path)]
        # A key of both is counted once, so three of the others are enough.
        return tuple(dict.fromkeys([*islice(named, 2), *islice(others, 3)]))[:2]


def _name_and_extension(path: bytes) -> tuple[bytes, bytes]:
    name = path.rpartition(b"/")[2]
    return b"/" + name, b"." + name.rpartition(b".")[2]


class _TreeEntry(NamedTuple):
    """An entry of a tree. `mode` is canonical, and `type` is 0 for a submodule."""

    name: bytes
    mode: int
    key: Key
    type: int


class _Trees:
    """Compares trees as `git diff-tree -c -r -t` does."""

    def __init__(self, form: ObjectFormat, read: Reading) -> None:
        self.read = read
        self._format = form

    def entries(self, key: Key) -> list[_TreeEntry]:
        found = self.read(key)
        if found.type != TREE:
            raise ValueError(f"object {key.hex()} is not a tree")
        rows = self._format.tree(key, found.text)
        return [_TreeEntry(name, canonical_mode(mode), entry, _type(mode)) for mode, name, entry in rows]

    def _by_name(self, key: Key) -> dict[tuple[bytes, bool], _TreeEntry]:
        """Return the entries, keyed by name and by whether they are trees, because git compares the two separately."""
        return {(entry.name, entry.type == TREE): entry for entry in self.entries(key)} if key else {}

    def changes(self, new: Key, before: Sequence[Key]) -> list[PathDifference]:
        """Return each path that differs from all of `before`. Equal differences of folders are listed once inside."""
        changes: list[PathDifference] = []
        compared: set[tuple[Key, ...]] = set()
        levels = [] if new in before else [self._compared(new, before, b"")]
        while levels:
            found = next(levels[-1], None)
            if found is None:
                levels.pop()
                continue
            change, olds = found
            changes.append(change)
            if change.type == TREE and (change.key, *olds) not in compared:
                compared.add((change.key, *olds))
                levels.append(self._compared(change.key, olds, change.path + b"/"))
        return changes

    def _compared(
        self, new: Key, before: Sequence[Key], folder: bytes
    ) -> Iterator[tuple[PathDifference, Sequence[Key]]]:
        """Yield each path in a folder that differs from all of `before`, and its key in each (empty if missing)."""
        olds = [self._by_name(key) for key in before]
        entries = self.entries(new) if new else []
        names = {(entry.name, entry.type == TREE) for entry in entries}
        for entry in entries:
            was = [old.get((entry.name, entry.type == TREE)) for old in olds]
            if any(e is not None and e.key == entry.key and e.mode == entry.mode for e in was):
                continue
            yield _change(folder + entry.name, entry.type, entry.key, was)
        for name, first in olds[0].items() if olds else ():
            if name not in names:
                was = [old.get(name) for old in olds]
                if None not in was:
                    yield _change(folder + first.name, first.type, b"", was)


def _change(path: bytes, kind: int, key: Key, was: Sequence[_TreeEntry | None]) -> tuple[PathDifference, Sequence[Key]]:
    before = tuple([(e.type, e.key) for e in was if e is not None and e.type])
    return PathDifference(path, kind, key, before), [e.key if e is not None else b"" for e in was]


def _closure(trees: _Trees, revision: Revision) -> list[Introduced]:
    """Return a tag, tree or blob and all objects that it reaches. The commit or tag that a tag names is left out."""
    records = [Introduced(revision.id, revision.type, b"", ())]
    if not revision.root:
        return records
    kind = revision.type
    if kind == TAG:
        kind = trees.read(revision.root).type
        records.append(Introduced(revision.root, kind, b"", ()))
    done = {revision.root}
    todo = [(revision.root, b"")] if kind == TREE else []
    while todo:
        key, folder = todo.pop()
        for entry in trees.entries(key):
            if entry.type and entry.key not in done:
                done.add(entry.key)
                records.append(Introduced(entry.key, entry.type, folder + entry.name, ()))
                if entry.type == TREE:
                    todo.append((entry.key, folder + entry.name + b"/"))
    return records


_TYPES = {FOLDER: TREE, FILE: BLOB, LINK: BLOB}


def _type(mode: bytes) -> int:
    """Return the type of the object that an entry of this mode names; 0 for a submodule, whose commit is elsewhere."""
    return _TYPES.get(entry_type(mode), 0)
