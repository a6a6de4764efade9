"""What a push must send: which revisions, and which objects each of them introduced.

The rule of this file: an object is introduced by a commit when no parent has it at that path, and no parent is seen
to have it at another path this commit touches. Objects are attributed commit by commit against its own parents,
never by the order of a walk: a walk gives an object to the first commit that shows it, which another tip may not reach.
"""

from __future__ import annotations

import subprocess
from binascii import hexlify, unhexlify
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import IO, NamedTuple

from smartserver.records.model import Announced, Key, Parent, RevisionId
from smartserver.vcs.base import CannotSend, ToolFailed
from smartserver.vcs.git import GitRepository, failure
from smartserver.vcs.git_objects import (
    BLOB,
    COMMIT,
    TAG,
    TREE,
    MissingObject,
    ReadingEnded,
    TreeEntry,
    canonical_mode,
    commit_links,
    end,
    mode_type,
    parse_tree,
    tag_target,
)


class Revision(NamedTuple):
    """A revision to be sent: a commit, a tag, or a tree or blob that a ref names directly."""

    id: RevisionId
    type: int
    parents: tuple[RevisionId, ...]
    root: Key
    """A commit's tree; the tree or blob a tag names when nothing else carries it; else empty."""


class Introduced(NamedTuple):
    """An object a revision introduced."""

    key: Key
    type: int
    path: bytes
    candidates: tuple[Key, ...]
    """What was at that path in the first two parents, or at a path this revision removed."""


class Change(NamedTuple):
    """One path at which a commit differs from all its parents; `key` is empty where it removed the path."""

    path: bytes
    type: int
    key: Key
    before: tuple[tuple[int, Key], ...]
    """Type and key in each parent that has the path."""


def cannot_send(repository: GitRepository, why: Exception) -> CannotSend:
    """The refusal to push because an object is missing or broken."""
    partial = " (a partial clone cannot push what it did not fetch)" if repository.is_partial else ""
    return CannotSend(f"cannot push: {why}{partial}")


# ---- revisions


def revisions(repository: GitRepository, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> list[Revision]:
    """The revisions reachable from `tips` and not from `haves`, parents first.

    Raises:
        CannotSend: the repository does not have all of them, or not their parents.
    """
    haves = list(haves)
    known = set(haves)
    listing: list[Revision] = []
    commits: dict[RevisionId, None] = {}
    others: list[Revision] = []
    try:
        for tip in dict.fromkeys(tips):
            _add_tip(repository, tip, known, commits, others)
    except (MissingObject, ReadingEnded, ValueError) as wrong:
        raise cannot_send(repository, wrong) from wrong
    if commits:
        listing = _list_commits(repository, list(commits), haves)
        cut = repository.shallow()
        if cut:
            for revision in listing:
                if revision.id in cut:
                    raise CannotSend(
                        f"cannot push from a shallow repository: the parents of {revision.id.hex()} are not here "
                        "(git fetch --unshallow from where it was cloned)"
                    )
    return listing + others


def _add_tip(
    repository: GitRepository,
    tip: RevisionId,
    known: set[RevisionId],
    commits: dict[RevisionId, None],
    others: list[Revision],
) -> None:
    """Follow a tip through its tags: commits to `commits`, the rest, inner tags first, to `others` and `known`."""
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
        target, kind = tag_target(found.text)
        if kind in (TREE, BLOB):
            tags.append(Revision(tip, TAG, (), target))
            break
        tags.append(Revision(tip, TAG, (target,), b""))
        tip = target
    others += reversed(tags)


def _list_commits(repository: GitRepository, tips: list[RevisionId], haves: Iterable[RevisionId]) -> list[Revision]:
    """The commits reachable from `tips` and not from `haves`, parents first.

    A have may be absent here, or lack ancestors of its own: then only haves that are whole cut the walk.
    """
    # ignore-missing must come before stdin: git reads its arguments in order.
    walk = ("rev-list", "--ignore-missing", "--topo-order", "--reverse", "--format=%T %P", "--stdin")
    wanted = b"".join([hexlify(key) + b"\n" for key in tips])
    known = [key for key in haves if len(key) == repository.id_length]
    try:
        listing = repository.run(*walk, stdin=wanted + _excluded(known))
    except ToolFailed:
        try:
            listing = repository.run(*walk, stdin=wanted + _excluded(repository.whole(known)))
        except ToolFailed as failed:
            raise cannot_send(repository, failed) from failed
    lines = iter(listing.decode("ascii").splitlines())
    found = []
    for line in lines:
        tree, *parents = next(lines).split(" ")
        ids = tuple([bytes.fromhex(parent) for parent in parents if parent])
        found.append(Revision(bytes.fromhex(line[7:]), COMMIT, ids, bytes.fromhex(tree)))  # "commit <id>"
    return found


def _excluded(keys: Iterable[RevisionId]) -> bytes:
    return b"".join([b"^" + hexlify(key) + b"\n" for key in keys])


def graph_of(plan: Sequence[Revision]) -> list[Announced]:
    """The revisions as they are announced."""
    return [Announced(revision.id, parents_of(revision)) for revision in plan]


def parents_of(revision: Revision) -> tuple[Parent, ...]:
    """A revision's parents as a segment has them: git never leaves one out."""
    return tuple([Parent(parent) for parent in revision.parents])


# ---- what each revision introduced


def introduced_few(repository: GitRepository, plan: Sequence[Revision]) -> Iterator[list[Introduced]]:
    """What each revision of a short plan introduced: trees are read and compared here, no further process is needed.

    Raises:
        CannotSend: an object is missing here.
    """
    trees = _Trees(repository)
    roots = {revision.id: revision.root for revision in plan if revision.type == COMMIT}
    try:
        for revision in plan:
            if revision.type != COMMIT:
                yield _closure(trees, revision)
                continue
            before = [_root(repository, parent, roots) for parent in revision.parents]
            changes: list[Change] = []
            if revision.root not in before:
                trees.compare(revision.root, before, b"", changes)
            yield settle(revision, before, changes)
    except (MissingObject, ReadingEnded, ValueError) as wrong:
        raise cannot_send(repository, wrong) from wrong


def introduced_many(repository: GitRepository, plan: Sequence[Revision]) -> Iterator[list[Introduced]]:
    """What each revision of a long plan introduced, through one `git diff-tree`.

    Raises:
        CannotSend: an object is missing here.
    """
    trees = _Trees(repository)
    roots = {revision.id: revision.root for revision in plan if revision.type == COMMIT}
    differences = _differences(repository, [revision.id for revision in plan if revision.type == COMMIT])
    try:
        for revision in plan:
            if revision.type == COMMIT:
                before = [_root(repository, parent, roots) for parent in revision.parents]
                yield settle(revision, before, next(differences))
            else:
                yield _closure(trees, revision)
    except (MissingObject, ReadingEnded, ValueError) as wrong:
        raise cannot_send(repository, wrong) from wrong
    finally:
        differences.close()


def _root(repository: GitRepository, commit: RevisionId, roots: dict[RevisionId, Key]) -> Key:
    root = roots.get(commit)
    if root is None:
        root = roots[commit] = commit_links(repository.objects.read(commit).text)[0]
    return root


def settle(revision: Revision, before: Sequence[Key], changes: Iterable[Change]) -> list[Introduced]:
    """What a commit introduced, its own object first; `before`: its parents' trees, `changes`: how it differs."""
    records = [Introduced(revision.id, COMMIT, b"", revision.parents[:2])]
    if revision.root in before:
        return records
    changes = list(changes)
    here_before = set(before)
    removed: list[Change] = []
    for change in changes:
        here_before.update([key for _, key in change.before])
        if not change.key:
            removed.append(change)
    done = set()
    if revision.root not in here_before:
        done.add(revision.root)
        records.append(Introduced(revision.root, TREE, b"", tuple(dict.fromkeys(before))[:2]))
    for path, kind, key, old in changes:
        # What a parent has at a path this commit changed or removed was moved, not introduced.
        if key and kind and key not in here_before and key not in done:
            done.add(key)
            candidates = tuple(dict.fromkeys([k for t, k in old if t == kind]))[:2]
            records.append(Introduced(key, kind, path, candidates or _moved_from(path, kind, removed)))
    return records


def _moved_from(path: bytes, kind: int, removed: list[Change]) -> tuple[Key, ...]:
    """Objects removed by the same commit that a new path may be an edited copy of: same name, else same extension."""
    if not removed:
        return ()
    name = path.rpartition(b"/")[2]
    extension = name.rpartition(b".")[2]
    same_name = []
    same_extension = []
    for change in removed:
        keys = [key for t, key in change.before if t == kind]
        if keys:
            old = change.path.rpartition(b"/")[2]
            if old == name:
                same_name.append(keys[0])
            elif old.rpartition(b".")[2] == extension:
                same_extension.append(keys[0])
    return tuple(dict.fromkeys(same_name + same_extension))[:2]


class _Trees:
    """Compares trees as `git diff-tree -c -r -t` does."""

    def __init__(self, repository: GitRepository) -> None:
        self._read = repository.objects.read
        self._width = repository.id_length

    def type_of(self, key: Key) -> int:
        return self._read(key).type

    def entries(self, key: Key) -> list[TreeEntry]:
        found = self._read(key)
        if found.type != TREE:
            raise ValueError(f"object {key.hex()} is not a tree")
        return parse_tree(found.text, self._width)

    def _by_name(self, key: Key) -> dict[tuple[bytes, bool], TreeEntry]:
        """A folder and a file of one name are two paths, as in git's order."""
        return {(entry.name, entry.type == TREE): entry for entry in self.entries(key)} if key else {}

    def compare(self, new: Key, before: Sequence[Key], folder: bytes, changes: list[Change]) -> None:
        """Add to `changes` each path below `folder` that differs from all of `before`; an empty key is no tree."""
        olds = [self._by_name(key) for key in before]
        entries = self.entries(new) if new else []
        names = {(entry.name, entry.type == TREE) for entry in entries}
        for entry in entries:
            was = [old.get((entry.name, entry.type == TREE)) for old in olds]
            if any(e is not None and e.key == entry.key and e.mode == entry.mode for e in was):
                continue
            self._add(folder + entry.name, entry.type, entry.key, was, changes)
        for name, first in olds[0].items() if olds else ():
            if name not in names:
                was = [old.get(name) for old in olds]
                if None not in was:
                    self._add(folder + first.name, first.type, b"", was, changes)

    def _add(self, path: bytes, kind: int, key: Key, was: Sequence[TreeEntry | None], changes: list[Change]) -> None:
        changes.append(Change(path, kind, key, tuple([(e.type, e.key) for e in was if e is not None and e.type])))
        if kind == TREE:
            self.compare(key, [e.key if e is not None else b"" for e in was], path + b"/", changes)


def _closure(trees: _Trees, revision: Revision) -> list[Introduced]:
    """A tag's own object, or a bare tree or blob, with all it reaches where no parent carries that."""
    records = [Introduced(revision.id, revision.type, b"", ())]
    if not revision.root:
        return records
    kind = revision.type
    if kind == TAG:
        kind = trees.type_of(revision.root)
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


# ---- git diff-tree

_ABSENT = b"000000"


def _differences(repository: GitRepository, commits: Sequence[RevisionId]) -> Generator[list[Change], None, None]:
    """For each of `commits` the paths at which it differs from all its parents."""
    import tempfile

    with tempfile.TemporaryFile() as questions, tempfile.TemporaryFile() as said:
        questions.write(b"".join([b"%s\n" % hexlify(key) for key in commits]))
        questions.seek(0)
        process = repository.start(
            *("diff-tree", "--stdin", "-c", "-r", "-t", "--root", "--raw", "-z", "--no-renames", "--no-abbrev"),
            stdin=questions,
            stdout=subprocess.PIPE,
            stderr=said,
        )
        assert process.stdout is not None
        try:
            waiting = iter(commits)
            for commit, changes in _parse_raw(_tokens(process.stdout)):
                for expected in waiting:  # A commit without a difference may not be named at all.
                    if expected == commit:
                        yield changes
                        break
                    yield []
            if process.wait() != 0:
                said.seek(0)
                raise cannot_send(repository, failure("diff-tree", process.returncode, said.read()))
            for _ in waiting:
                yield []
        finally:
            end(process)


def _tokens(output: IO[bytes]) -> Iterator[bytes]:
    """NUL-ended pieces of a stream."""
    rest = b""
    while block := output.read(1 << 18):
        pieces = (rest + block).split(b"\0")
        rest = pieces.pop()
        yield from pieces


def _parse_raw(tokens: Iterator[bytes]) -> Iterator[tuple[RevisionId, list[Change]]]:
    """`diff-tree --raw -z` output: a commit's id, then for each path modes, keys and status, then the path."""
    commit = b""
    changes: list[Change] = []
    for token in tokens:
        if not token.startswith(b":"):
            if commit:
                yield commit, changes
            commit, changes = unhexlify(token), []
            continue
        fields = token.lstrip(b":").split(b" ")
        parents = (len(fields) - 3) // 2
        kinds = [_raw_type(mode) for mode in fields[: parents + 1]]
        keys = [unhexlify(key) for key in fields[parents + 1 : -1]]
        before = tuple([(kind, key) for kind, key in zip(kinds[:-1], keys[:-1], strict=True) if kind > 0])
        path = next(tokens)
        if kinds[-1] >= 0:
            changes.append(Change(path, kinds[-1], keys[-1], before))
        elif before:
            changes.append(Change(path, before[0][0], b"", before))
    if commit:
        yield commit, changes


def _raw_type(mode: bytes) -> int:
    """The type a mode stands for: 0 a submodule, -1 no such path."""
    return -1 if mode == _ABSENT else mode_type(canonical_mode(int(mode, 8)))
