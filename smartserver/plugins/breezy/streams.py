"""Imports a stream of git fast-import into Breezy's branches on a server, and exports such branches.

Breezy's own plugin `fastimport` works on a local repository. So branches are received from the server one by one, and
each changed branch is pushed in one request. `refs/heads/NAME` is the branch NAME below the URL. `refs/heads/master` is
the branch at the URL itself, if there is one, else the branch `trunk`, as in Breezy's `fast-import`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import IO, Any, Final

import breezy
import breezy.bzr
from breezy import errors, urlutils
from breezy.branch import Branch
from breezy.controldir import ControlDir, format_registry
from breezy.plugins.fastimport.exporter import BzrFastExporter
from breezy.plugins.fastimport.processors.generic_processor import GenericProcessor
from breezy.repository import Repository
from breezy.revision import NULL_REVISION
from fastimport import commands

from smartserver.errors import NoSuchRepository
from smartserver.plugins import breezy_shim
from smartserver.vcs.base import BadStream, CannotSend
from smartserver.vcs.stream import (
    FILE,
    HEADS,
    LINK,
    NOTES,
    PROGRAM,
    TAGS,
    FileChanges,
    FileVersion,
    Refs,
    claim,
    path_problem,
)

MASTER: Final = b"master"
TRUNK: Final = "trunk"

Marks = dict[bytes, bytes]
"""The ids of revisions by their marks."""

_TRUNKS: Final = re.compile(rb"(git-)*trunk")


class LocalCopy:
    """A local shared repository with the branches of a repository on a server."""

    def __init__(self, folder: str, url: str) -> None:
        self._folder = folder
        self._url = url.rstrip("/")
        self._is_new = False
        try:
            self.repository: Repository = ControlDir.open(folder).open_repository()
        except errors.NotBranchError:
            made = ControlDir.create(folder, format=format_registry.make_controldir("2a"))
            self.repository = made.create_repository(shared=True)
            self.repository.set_make_working_trees(False)
        self.branches: dict[str, Branch] = {}
        """The local copies of the server's branches, by name; the name of the URL's own branch is empty."""

    def receive(self, *, may_create: bool) -> None:
        """Receive all branches of the server. `may_create`: True if the repository may be missing."""
        try:
            there = ControlDir.open(self._url).get_branches()
        except errors.NotBranchError as error:
            if not (may_create and isinstance(error.__cause__, NoSuchRepository)):
                raise
            there, self._is_new = {}, True
        for name, branch in there.items():
            local = self.branch(name)
            local.pull(branch, overwrite=True)
            self.branches[name] = local

    def branch(self, name: str) -> Branch:
        """Return the local branch of that name, and create it if it is missing. Its folder is named by a hash, so any
        name works."""
        place = os.path.join(self._folder, hashlib.sha256(name.encode()).hexdigest())
        try:
            return ControlDir.open(place).open_branch()
        except errors.NotBranchError:
            os.makedirs(place, exist_ok=True)
            return ControlDir.create_branch_convenience(
                place, format=format_registry.make_controldir("2a"), force_new_tree=False
            )

    def push(self, names: Iterable[str], *, force: bool) -> None:
        """Push branches, each in one request. Before the first branch of a new repository, another request creates the
        repository. `force`: True if the branches may lose revisions."""
        if self._is_new:
            ControlDir.open(self._url).create_repository(shared=True)
        for name in names:
            self._target(name).push_branch(self.branch(name), overwrite=force, remember=False)

    def delete(self, names: Iterable[str]) -> None:
        """Delete branches on the server, each in one request."""
        for name in names:
            self._target(name).destroy_branch()

    def _target(self, name: str) -> Any:
        return ControlDir.open(f"{self._url}/{urlutils.escape(name)}" if name else self._url)


@contextmanager
def local_copy(folder: str, url: str, flags: Set[str], *, may_create: bool) -> Iterator[LocalCopy]:
    """Yield a repository in a folder, with the whole content of the repository at `url`. `may_create`: True if that
    repository may be missing."""
    assert breezy_shim.SCHEMES  # Importing the shim makes Breezy know our URLs.
    os.makedirs(folder, exist_ok=True)
    try:
        with breezy.initialize(setup_ui=False) as state:
            if flags:
                state.cmdline_overrides._from_cmdline([f"hpss.debug={','.join(sorted(flags))}"])
            found = LocalCopy(folder, url)
            found.receive(may_create=may_create)
            yield found
    except errors.DivergedBranches as error:
        raise CannotSend("the branch has diverged: merge first, or use --force to overwrite it") from error
    except errors.BzrError as error:
        raise CannotSend(str(error).partition("\n")[0]) from error


def ref_of(name: str, branches: Mapping[str, object]) -> bytes:
    """Return the ref of a branch. `branches`: all branches, by name."""
    if "" in branches:
        return HEADS + (name.encode() or MASTER)
    if name == TRUNK:
        return HEADS + MASTER
    own = name.encode()
    return HEADS + (own.removeprefix(b"git-") if _TRUNKS.fullmatch(own) else own)


def name_of(ref: bytes, branches: Mapping[str, object]) -> str:
    """Return the name of the branch of a ref: the inverse of `ref_of`."""
    own = ref.removeprefix(HEADS)
    if own == MASTER:
        return "" if "" in branches else TRUNK
    if "" not in branches and _TRUNKS.fullmatch(own):
        own = b"git-" + own
    if path_problem(own, b".bzr"):
        raise ValueError(
            f"no branch can have the name {own.decode('utf-8', 'replace')!r} ({ref.decode('utf-8', 'replace')})"
        )
    return own.decode()


class StreamImport(GenericProcessor):  # type: ignore[misc]
    """Creates revisions from the commits of a stream. Unlike Breezy's own class, it does not lose a branch when another
    branch builds on its tip."""

    def __init__(self, local: LocalCopy, marks: Marks, *, force: bool) -> None:
        """`marks`: the marks of earlier streams, to which the marks of this stream are added. `force`: branches may
        lose revisions, and tags may move."""
        super().__init__(local.repository.controldir)
        self._local = local
        self._force = force
        tips = {ref_of(name, local.branches): branch.last_revision() for name, branch in local.branches.items()}
        tags = {
            TAGS + tag.encode(): revision
            for branch in local.branches.values()
            for tag, revision in branch.tags.get_tag_dict().items()
        }
        self._refs = Refs(tips | tags, marks)
        self._changed: list[str] = []
        self._gone: list[str] = []
        self.submodules = self.notes = self.tags = 0
        """The number of submodules, notes and tags that were left out."""

    def read(self, stream: Callable[[], Iterable[Any]]) -> None:
        """Import a stream into the local copy. `stream`: returns the commands of the stream."""
        with contextlib.redirect_stdout(io.StringIO()):  # Breezy prints there why it stops.
            self.process(stream)
        changed = self._refs.changed()
        tags = {
            ref.removeprefix(TAGS).decode("utf-8", "replace"): revision
            for ref, revision in self._refs.moved.items()
            if ref.startswith(TAGS)
        }
        for ref in changed if not self._force else ():
            if ref.startswith(TAGS) and ref in self._refs.there:
                raise BadStream(f"{ref.decode('utf-8', 'replace')} would move; --force moves it")
        gone = [ref for ref in self._refs.gone & self._refs.there.keys() if ref.startswith(HEADS)]
        if gone and not self._force:
            raise BadStream(f"{gone[0].decode('utf-8', 'replace')} would be deleted; --force deletes it")
        self._gone = [name_of(ref, self._local.branches) for ref in gone]
        with self.repo.lock_read():
            graph = self.repo.get_graph()
            placed: set[str] = set()
            for ref, tip in self._refs.moved.items():
                if ref.startswith(HEADS):
                    placed |= self._set_branch(graph, ref, tip, tags)
        self.tags = len(tags) - len(placed)

    def _set_branch(self, graph: Any, ref: bytes, tip: bytes, tags: Mapping[str, bytes]) -> set[str]:
        """Set the local branch of a ref, which is pushed later. Return the names of those `tags` that it reaches."""
        name = name_of(ref, self._local.branches)
        before = self._refs.there.get(ref)
        if before is not None and not self._force and not graph.is_ancestor(before, tip):
            raise BadStream(f"the branch {name or 'at the URL'} would lose commits; --force moves it")
        reached = {ancestor for ancestor, _ in graph.iter_ancestry([tip])} if tags else set()
        own = {tag: revision for tag, revision in tags.items() if revision in reached}
        branch = self._local.branch(name)
        with branch.lock_write():
            if before == tip and own.items() <= branch.tags.get_tag_dict().items():
                return set(own)
            branch.set_last_revision_info(graph.find_distance_to_null(tip, []), tip)
            for tag, revision in own.items():
                branch.tags.set_tag(tag, revision)
        self._changed.append(name)
        return set(own)

    def push(self) -> list[str]:
        """Push each changed branch in a separate request, and return the names of the branches. If this is interrupted,
        only some are pushed, and the next import continues."""
        if self._changed:
            self._local.push(self._changed, force=self._force)
        self._local.delete(self._gone)
        return [name or "the branch at the URL" for name in (*self._changed, *self._gone)]

    def pre_process(self) -> None:
        """Prepare as Breezy does, with the marks of earlier streams."""
        super().pre_process()
        self.skip_total = 0
        # Breezy's known graph has only the ancestors of the first commit, and panics at other revisions.
        self.rev_store._use_known_graph = not self._local.branches
        self.cache_mgr.marks = {b"0": NULL_REVISION, **self._refs.marks}

    def post_process(self) -> None:
        """End the write group only. Branches are created later, and packs are not joined: the push reads them once."""
        self.repo.commit_write_group()

    def _save_id_map(self) -> None:
        """Write no map: a failed import starts from the beginning."""

    def note(self, msg: str, *args: object) -> None:
        """Print nothing."""

    def commit_handler(self, cmd: Any) -> None:
        """Create a revision from a commit of the stream."""
        if cmd.ref.startswith(NOTES):
            self.notes += 1
            return
        first = self._refs.parent(cmd.ref) if cmd.from_ is None else self._find(cmd.from_, cmd)
        merged = [self._find(merge, cmd) for merge in cmd.merges]
        marks = [self._mark_of(parent) for parent in (*([] if first is None else [first]), *merged)]
        cmd.from_, cmd.merges = (None, marks) if first is None else (marks[0], marks[1:])
        self.cache_mgr.reftracker.last_ids.pop(cmd.ref, None)  # Its parents are those that are named here.
        try:
            if cmd.ref.startswith(HEADS):
                name_of(cmd.ref, self._local.branches)
            cmd.iter_files = self._net_changes(first, cmd.iter_files()).__iter__
            super().commit_handler(cmd)
        except (errors.BzrError, LookupError, ValueError) as error:
            raise BadStream.at(cmd.lineno, " ".join(str(error).split())) from error
        made = self.cache_mgr.marks[cmd.id.lstrip(b":")]
        if cmd.mark:
            self._refs.marks[cmd.mark] = made
        self._refs.set(cmd.ref, made)

    def _net_changes(self, parent: bytes | None, changes: Iterable[Any]) -> list[Any]:
        """Return the changes of a commit, in an order in which Breezy's renames lose no file."""
        before = _Before(self, parent)
        files = FileChanges(before, b".bzr")
        for change in changes:
            self.submodules += not files.apply(change, self._text_of)
        found = files.result()
        for path in found:
            path.decode()  # Breezy has only names in UTF-8.
        gone = {path for path, file in found.items() if file is None}
        sources = Counter(file.source for file in found.values() if file is not None)
        paths = [*found, *gone]
        folders = {path[:end] for path in paths for end, byte in enumerate(path) if byte == ord("/")}
        renamed: list[Any] = []
        put: list[Any] = []
        for path, file in sorted(found.items()):
            if file is None:
                continue
            source = file.source
            is_rename = (
                source in gone
                and sources[source] == 1
                and not before.has(path)
                and not before.has_folder(path)
                and source not in folders
                and path not in folders
                and not any(path[:end] in gone for end, byte in enumerate(path) if byte == ord("/"))
            )
            if is_rename and source is not None:
                renamed.append(commands.FileRenameCommand(source, path))
                gone.discard(source)
            put.append(commands.FileModifyCommand(path, file.mode, None, file.text()))
        return [*renamed, *map(commands.FileDeleteCommand, sorted(gone)), *put]

    def _text_of(self, change: Any) -> Callable[[], bytes]:
        if change.data is not None:
            return lambda: bytes(change.data)
        mark = change.dataref
        try:
            text = self.cache_mgr.fetch_blob(mark)
        except KeyError:
            raise ValueError(f"no text {mark.decode('utf-8', 'replace')}") from None
        return lambda: bytes(text)

    def _find(self, name: bytes, cmd: Any) -> bytes:
        try:
            found = self._refs.find(name)
            if not self.repo.has_revision(found):
                raise LookupError(f"no commit {name.decode('utf-8', 'replace')}")
        except LookupError as error:
            raise BadStream.at(cmd.lineno, str(error)) from None
        return found

    def _mark_of(self, revision: bytes) -> bytes:
        """Return a mark for a revision, since Breezy knows only marks."""
        name = b"revision " + revision
        self.cache_mgr.marks[name] = revision
        return b":" + name

    def reset_handler(self, cmd: Any) -> None:
        """Set, reset or delete a ref."""
        if cmd.from_ is None:
            self._refs.reset(cmd.ref)
        elif cmd.from_ == b"0" * len(cmd.from_):
            self._refs.delete(cmd.ref)
        else:
            self._set(cmd.ref, self._find(cmd.from_, cmd), cmd)

    def tag_handler(self, cmd: Any) -> None:
        """Set a tag."""
        self._set(TAGS + cmd.id, self._find(cmd.from_, cmd), cmd)

    def _set(self, ref: bytes, revision: bytes, cmd: Any) -> None:
        try:
            if ref.startswith(HEADS):
                name_of(ref, self._local.branches)
        except ValueError as error:
            raise BadStream.at(cmd.lineno, str(error)) from None
        self._refs.set(ref, revision)

    def feature_handler(self, cmd: Any) -> None:
        """Do nothing, because the parser has checked the feature."""

    def checkpoint_handler(self, cmd: Any) -> None:
        """Do nothing, because all changes are made at once at the end of the stream."""


class _Before:
    """The files of a revision, in the form that `FileChanges` needs."""

    def __init__(self, processor: Any, revision: bytes | None) -> None:
        self._store = processor.rev_store
        self._inventory = None
        if revision is not None:
            known = processor.cache_mgr.inventories
            if revision not in known:
                known[revision] = self._store.get_inventory(revision)
            self._inventory = known[revision]

    def _entry(self, path: bytes) -> Any:
        if self._inventory is None:
            return None
        try:
            found = self._inventory.path2id(path.decode())
        except UnicodeDecodeError:
            return None
        return None if found is None else self._inventory.get_entry(found)

    def has(self, path: bytes) -> bool:
        entry = self._entry(path)
        return entry is not None and entry.kind != "directory"

    def has_folder(self, path: bytes) -> bool:
        entry = self._entry(path)
        return entry is not None and entry.kind == "directory"

    def paths(self, folder: bytes) -> Iterable[bytes]:
        entry = self._entry(folder)
        if entry is None or self._inventory is None:
            return []
        start = folder + b"/" if folder else b""
        below = self._inventory.iter_entries(from_dir=entry.file_id)
        return [start + path.encode() for path, node in below if path and node.kind != "directory"]

    def file(self, path: bytes) -> FileVersion:
        entry = self._entry(path)
        if entry.kind == "symlink":
            return FileVersion(entry.symlink_target.encode, LINK, None)
        lines = self._store.get_file_lines
        mode = PROGRAM if entry.executable else FILE
        return FileVersion(lambda: b"".join(lines(entry.revision, path.decode())), mode, None)


class _Exporter(BzrFastExporter):  # type: ignore[misc]
    """Breezy's exporter, but it prints only the stream."""

    number = 0
    """The last mark that was assigned."""

    def note(self, msg: str, *args: object) -> None:
        """Print nothing."""

    def warning(self, msg: str, *args: object) -> None:
        """Print nothing."""

    def interesting_history(self) -> list[bytes]:
        """Return the revisions without a mark. Breezy's own method fails if the first one has a mark."""
        return [revision for revision in super().interesting_history() if revision not in self.revid_to_mark]

    def preprocess_commit(self, revid: bytes, revobj: Any, ref: bytes) -> Any:
        """Give a revision the next unused mark. Breezy's own method uses the number of marks, which may be in use."""
        is_new = revid not in self.revid_to_mark
        found = super().preprocess_commit(revid, revobj, ref)
        if is_new and self.revid_to_mark.get(revid):
            self.number += 1
            self.revid_to_mark[revid] = b"%d" % self.number
        return found

    def _get_name_email(self, user: str) -> tuple[bytes, bytes]:
        name, _, rest = user.partition("<")
        if not rest and "@" in name and " " not in name.strip():
            name, rest = "", name
        found = [part.translate(_NOT_IN_NAMES).strip().encode() for part in (name, rest.partition(">")[0])]
        return found[0], found[1]

    def _get_filecommands(self, tree_old: Any, tree_new: Any) -> Iterator[Any]:
        """Yield the differences by path: first deleted files, then new ones. Breezy's own order of renames loses
        files."""
        before: set[str] = set()
        after: set[str] = set()
        for change in tree_new.iter_changes(tree_old):
            moves = change.path[0] != change.path[1]
            for tree, path, kind, found in zip(
                (tree_old, tree_new), change.path, change.kind, (before, after), strict=True
            ):
                if path is not None and kind == "directory" and moves:
                    found |= {file_path for file_path, entry in _below(tree, path) if entry.kind != "directory"}
                elif path is not None and kind not in (None, "directory"):
                    found.add(path)
        for path in sorted(before - after):
            yield commands.FileDeleteCommand(path.encode())
        for path in sorted(after):
            kind = tree_new.kind(path)
            if kind == "symlink":
                target = tree_new.get_symlink_target(path).encode()
                yield commands.FileModifyCommand(path.encode(), LINK, None, target)
            elif kind == "file":
                mode = PROGRAM if tree_new.is_executable(path) else FILE
                yield commands.FileModifyCommand(path.encode(), mode, None, tree_new.get_file_text(path))

    def emit_tags(self) -> None:
        """Write no tags, because the tags of all branches are written at the end."""


_NOT_IN_NAMES: Final = str.maketrans("", "", "<>\n")


def _below(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the entries below a folder of a tree, with their paths."""
    for file_path, entry in tree.iter_entries_by_dir(specific_files=None):
        if file_path.startswith(f"{path}/" if path else ""):
            yield file_path, entry


def export_stream(local: LocalCopy, output: IO[bytes], marks: Marks, say: Callable[[int], object]) -> None:
    """Write the stream of all branches, without the revisions that have a mark. `say` is called with the number of
    revisions written so far."""
    known = {revision: mark for mark, revision in marks.items()}
    before, number = len(known), max((int(mark) for mark in marks), default=0)
    refs: dict[bytes, bytes] = {}
    for name, branch in sorted(local.branches.items()):
        tip = branch.last_revision()
        if tip != NULL_REVISION:
            claim(refs, ref_of(name, local.branches), tip, hashlib.sha256(tip).hexdigest()[:12].encode())
    output.write(b"feature done\n")
    working = next(iter(refs), b"")
    for branch in local.branches.values():
        exporter = _Exporter(branch, output, working, plain_format=True)
        exporter.revid_to_mark, exporter.number = known, number
        exporter.run()
        number = exporter.number
        say(len(known) - before)
    for branch in local.branches.values():
        for tag, revision in branch.tags.get_tag_dict().items():
            if known.get(revision):
                claim(refs, TAGS + tag.encode(), revision, hashlib.sha256(revision).hexdigest()[:12].encode())
    for ref, revision in refs.items():
        output.write(b"reset %b\nfrom :%b\n" % (ref, known[revision]))
    output.write(b"done\n")
    marks |= {mark: revision for revision, mark in known.items() if mark}
