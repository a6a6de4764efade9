"""A history as a stream of git fast-import, into and out of Breezy's branches on a server.

Breezy's own plugin `fastimport` reads and writes in a local repository. Branches are received from the server one by
one, and each one that has changed is pushed in one request. `refs/heads/NAME` is the branch NAME below the URL, and
`refs/heads/master` the branch `trunk`, as Breezy's `fast-import` has them.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import IO, Any, Final

import breezy
import breezy.bzr
from breezy import errors
from breezy.branch import Branch
from breezy.controldir import ControlDir, format_registry
from breezy.plugins.fastimport.branch_mapper import BranchMapper
from breezy.plugins.fastimport.bzr_commit_handler import CommitHandler
from breezy.plugins.fastimport.exporter import BzrFastExporter
from breezy.plugins.fastimport.processors.generic_processor import GenericProcessor
from breezy.repository import Repository
from breezy.revision import NULL_REVISION
from fastimport import commands

from smartserver.errors import NoSuchRepository
from smartserver.plugins import breezy_shim
from smartserver.vcs.base import BadStream, CannotSend

HEADS: Final = b"refs/heads/"
TAGS: Final = b"refs/tags/"
MASTER: Final = HEADS + b"master"
TRUNK: Final = "trunk"

Marks = dict[bytes, bytes]
"""Ids of revisions by their marks."""


class LocalCopy:
    """A shared repository here, with the branches of the one on a server."""

    def __init__(self, folder: str, url: str) -> None:
        self.folder = folder
        self._is_new = False
        self._url = url.rstrip("/")
        try:
            self.repository: Repository = ControlDir.open(folder).open_repository()
        except errors.NotBranchError:
            made = ControlDir.create(folder, format=format_registry.make_controldir("2a"))
            self.repository = made.create_repository(shared=True)
            self.repository.set_make_working_trees(False)
        self.branches: dict[str, Branch] = {}
        """Those of the server by their names, the one of the URL itself being empty; as they are here."""

    def receive(self, *, may_create: bool) -> None:
        """Bring all branches of the server here. `may_create`: the repository need not be there yet."""
        try:
            there = ControlDir.open(self._url).get_branches()
        except errors.NotBranchError as wrong:
            if not (may_create and isinstance(wrong.__cause__, NoSuchRepository)):
                raise
            there, self._is_new = {}, True
        for name, branch in there.items():
            local = self.branch(name)
            local.pull(branch, overwrite=True)
            self.branches[name] = local

    def branch(self, name: str) -> Branch:
        """The branch of that name here, which is made if it is missing."""
        place = os.path.join(self.folder, name or ".")
        try:
            return ControlDir.open(place).open_branch()
        except errors.NotBranchError:
            os.makedirs(place, exist_ok=True)
            return ControlDir.create_branch_convenience(
                place, format=format_registry.make_controldir("2a"), force_new_tree=False
            )

    def push(self, names: Iterable[str], *, force: bool) -> None:
        """Push branches, each in one request; a new repository is made by another. `force`: they may lose revisions."""
        if self._is_new:
            ControlDir.open(self._url).create_repository(shared=True)
        for name in names:
            target = ControlDir.open(f"{self._url}/{name}" if name else self._url)
            target.push_branch(self.branch(name), overwrite=force, remember=False)


@contextmanager
def local_copy(folder: str, url: str, flags: Set[str], *, may_create: bool) -> Iterator[LocalCopy]:
    """A repository in a folder, with all that the one at `url` has. `may_create`: that need not be there yet.

    Raises:
        CannotSend: it cannot be received, or Breezy refuses it; the message is Breezy's.
    """
    assert breezy_shim.SCHEMES  # Imported, it makes Breezy know our URLs.
    os.makedirs(folder, exist_ok=True)
    try:
        with breezy.initialize(setup_ui=False) as state:
            if flags:
                state.cmdline_overrides._from_cmdline([f"hpss.debug={','.join(sorted(flags))}"])
            found = LocalCopy(folder, url)
            found.receive(may_create=may_create)
            yield found
    except errors.DivergedBranches as wrong:
        raise CannotSend(f"{wrong}; --force moves it") from wrong
    except errors.BzrError as wrong:
        raise CannotSend(str(wrong).partition("\n")[0]) from wrong


class StreamImport(GenericProcessor):  # type: ignore[misc]
    """Makes revisions of the commits of a stream. Breezy's own forgets a branch whose tip another one has built on."""

    def __init__(self, local: LocalCopy, marks: Marks) -> None:
        """`marks`: of earlier streams; those of this one are added."""
        super().__init__(local.repository.controldir)
        self._local = local
        self._all_marks = marks
        self._tips: dict[bytes, bytes] = {}
        """The revisions of refs."""
        self.submodules = self.notes = 0
        """How many were left out."""

    def run(self, stream: Callable[[], Iterable[Any]], *, force: bool) -> list[str]:
        """Read a stream, and push what it adds; returns the names of the branches that changed. `force`: they may lose
        revisions.

        Raises:
            BadStream: it cannot be imported.
        """
        with contextlib.redirect_stdout(io.StringIO()):  # Breezy prints there why it stops.
            self.process(stream)
        mapper = BranchMapper()
        tags = {
            ref.removeprefix(TAGS).decode("utf-8", "replace"): tip
            for ref, tip in self._tips.items()
            if ref.startswith(TAGS)
        }
        changed: list[str] = []
        with self.repo.lock_read():
            graph = self.repo.get_graph()
            for ref, tip in self._tips.items():
                if not ref.startswith(HEADS) or tip == NULL_REVISION:
                    continue
                name = mapper.git_to_bzr(ref)
                branch = self._local.branch(name)
                reached = {each for each, _ in graph.iter_ancestry([tip])} if tags else set()
                own = {tag: revision for tag, revision in tags.items() if revision in reached}
                with branch.lock_write():
                    if branch.last_revision() == tip and own.items() <= branch.tags.get_tag_dict().items():
                        continue
                    branch.set_last_revision_info(graph.find_distance_to_null(tip, []), tip)
                    for tag, revision in own.items():
                        branch.tags.set_tag(tag, revision)
                changed.append(name)
        if changed:
            self._local.push(changed, force=force)
        return changed

    def pre_process(self) -> None:
        """As Breezy's, with the marks and branches that there are."""
        super().pre_process()
        self.commit_handler_factory = _Commit
        self.skip_total = 0
        # Its graph has the ancestors of the first commit alone, and panics of others.
        self.rev_store._use_known_graph = not self._local.branches
        self.cache_mgr.marks = {b"0": NULL_REVISION, **self._all_marks}
        for name, branch in self._local.branches.items():
            self._tips[_ref_of(name, self._local.branches)] = branch.last_revision()

    def post_process(self) -> None:
        """Keep the marks. Branches are made afterwards, and packs are not joined: the push reads them once."""
        self.repo.commit_write_group()
        self._all_marks |= {mark: revision for mark, revision in self.cache_mgr.marks.items() if mark != b"0"}

    def _save_id_map(self) -> None:
        """Write none: an import that fails begins anew."""

    def note(self, msg: str, *args: object) -> None:
        """Say nothing."""

    def commit_handler(self, cmd: Any) -> None:
        """Make a revision."""
        if cmd.ref.startswith(b"refs/notes/"):
            self.notes += 1
            return
        parents = [cmd.from_] if cmd.from_ is not None else []
        if cmd.from_ is None and self._tips.get(cmd.ref, NULL_REVISION) != NULL_REVISION:
            parents = [cmd.ref]
        marks = [self._mark_of(each, cmd) for each in (*parents, *cmd.merges)]
        cmd.from_, cmd.merges = (marks[0], marks[1:]) if parents else (None, marks)
        changes = list(cmd.iter_files())
        kept = [each for each in changes if getattr(each, "mode", None) != 0o160000]
        self.submodules += len(changes) - len(kept)
        cmd.iter_files = _in_order(kept).__iter__
        try:
            super().commit_handler(cmd)
        except (errors.BzrError, KeyError, ValueError, UnicodeError) as wrong:
            raise BadStream.at(cmd.lineno, f"{type(wrong).__name__}: {' '.join(str(wrong).split())}") from wrong
        self._tips[cmd.ref] = self.cache_mgr.marks[cmd.id.lstrip(b":")]

    def _mark_of(self, name: bytes, cmd: Any) -> bytes:
        """The mark of a commit that a stream names by a mark or a ref."""
        if not name.startswith(b":"):
            revision = self._tips.get(name.removesuffix(b"^0"))
            if revision is not None:
                name = b":" + name
                self.cache_mgr.marks[name[1:]] = revision
        if name[1:] not in self.cache_mgr.marks:
            raise BadStream.at(getattr(cmd, "lineno", 0) or 0, f"no commit {name.decode('utf-8', 'replace')}")
        return name

    def reset_handler(self, cmd: Any) -> None:
        """Move a ref."""
        if cmd.from_ is None:
            self._tips[cmd.ref] = NULL_REVISION
        else:
            self._tips[cmd.ref] = self.cache_mgr.marks[self._mark_of(cmd.from_, cmd)[1:]]

    def tag_handler(self, cmd: Any) -> None:
        """Make a tag."""
        self._tips[TAGS + cmd.id] = self.cache_mgr.marks[self._mark_of(cmd.from_, cmd)[1:]]

    def feature_handler(self, cmd: Any) -> None:
        """The parser has looked at it."""

    def checkpoint_handler(self, cmd: Any) -> None:
        """There are none: all changes at once, at the end."""


class _Commit(CommitHandler):  # type: ignore[misc]
    """Makes a revision; a file that is to be moved and is missing is a fault."""

    def warning(self, msg: str, *args: object) -> None:
        """Say nothing of what git takes, too."""
        said = msg % args if args else msg
        if said.startswith(("ignoring rename", "ignoring copy")):
            raise ValueError(said)


def _in_order(changes: list[Any]) -> list[Any]:
    """Changes of files in an order that Breezy understands: a file is removed before a folder takes its place. git
    writes the other order, and by its own rules loses the folder."""
    folders = {
        change.path[:end]
        for change in changes
        if isinstance(change, commands.FileModifyCommand)
        for end in range(len(change.path))
        if change.path[end] == ord("/")
    }
    first = [each for each in changes if isinstance(each, commands.FileDeleteCommand) and each.path in folders]
    return [*first, *(each for each in changes if each not in first)] if first else changes


class _Exporter(BzrFastExporter):  # type: ignore[misc]
    """Breezy's, which prints nothing but the stream."""

    def note(self, msg: str, *args: object) -> None:
        """Say nothing."""

    def interesting_history(self) -> list[bytes]:
        """The revisions without a mark. Breezy's own fails where the first one has one."""
        return [revision for revision in super().interesting_history() if revision not in self.revid_to_mark]

    def emit_features(self) -> None:
        """Announce nothing: one stream has all branches."""


def export_stream(local: LocalCopy, output: IO[bytes], marks: Marks, say: Callable[[int], object]) -> None:
    """Write the stream of all branches, without the revisions that have a mark. `say` is told the number of revisions
    that were written."""
    known = {revision: mark for mark, revision in marks.items()}
    before = len(known)
    output.write(b"feature done\n")
    tips: dict[bytes, bytes] = {}
    for name, branch in sorted(local.branches.items()):
        ref = _ref_of(name, local.branches)
        exporter = _Exporter(branch, output, ref, plain_format=True, rewrite_tags=True)
        exporter.revid_to_mark = known
        exporter.run()
        tips[ref] = branch.last_revision()
        say(len(known) - before)
    for ref, tip in tips.items():
        if known.get(tip):
            output.write(b"reset %b\nfrom :%b\n" % (ref, known[tip]))
    output.write(b"done\n")
    marks |= {mark: revision for revision, mark in known.items() if mark}


def _ref_of(name: str, beside: Mapping[str, object]) -> bytes:
    """The ref of a branch; `beside`: all branches."""
    if not name or (name == TRUNK and "" not in beside):
        return MASTER
    return HEADS + name.encode()
