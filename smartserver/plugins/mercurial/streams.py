"""A history as a stream of git fast-import, into and out of a repository of Mercurial's on a server.

A local repository is pulled from the server. There Mercurial makes the changesets of the stream, and they are pushed
in one request.

| stream | Mercurial |
|---|---|
| a branch, `refs/heads/NAME` | the bookmark NAME; all changesets are on the branch `default` |
| tags | lines of a `.hgtags` in a closed branch of its own, `tags`: the history itself gets no changeset more |
| a commit with more than two parents | several changesets, each of which merges one more |
| author and committer | the author is the user; another committer is in the field `committer`, as hg-git has it |
| submodules, notes | left out, and counted |
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from typing import IO, Any, Final, NamedTuple

from fastimport import commands
from mercurial import context, dispatch, encoding, error, exchange, hg, scmutil
from mercurial import ui as user_interface
from mercurial.node import bin as binary
from mercurial.node import hex as hexadecimal

from smartserver.errors import NoSuchRepository
from smartserver.plugins.mercurial import extension
from smartserver.plugins.mercurial.compat import FACTORY
from smartserver.vcs.base import BadStream, CannotSend
from smartserver.vcs.hg.kinds import NULL

HEADS: Final = b"refs/heads/"
TAGS: Final = b"refs/tags/"
BRANCH_OF_TAGS: Final = b"tags"
MADE: Final = b"fast-import"
"""The field of the changesets in that branch."""

LINK, FILE, PROGRAM, SUBMODULE = 0o120000, 0o100644, 0o100755, 0o160000
_FLAGS: Final = {FILE: b"", PROGRAM: b"x", LINK: b"l"}
_MODES: Final = {flags: mode for mode, flags in _FLAGS.items()}

Marks = dict[bytes, bytes]
"""Ids of changesets by their marks."""


class LocalCopy:
    """A repository here, and the one on the server that it was received from."""

    def __init__(self, repository: Any, peer: Any) -> None:
        self.repository = repository
        self._peer = peer

    def bookmarks(self) -> dict[bytes, bytes]:
        """The changeset of each bookmark."""
        return dict(self.repository._bookmarks)

    def push(self, names: Iterable[bytes]) -> None:
        """Push all changesets, and these bookmarks, in one request."""
        heads = self.repository.heads()
        exchange.push(self.repository, self._peer, force=True, newbranch=True, revs=heads, bookmarks=list(names))


@contextmanager
def local_copy(folder: str, url: str, flags: Set[str], *, may_create: bool) -> Iterator[LocalCopy]:
    """A repository in a folder, with all that the one at `url` has. `may_create`: that need not be there yet.

    Raises:
        CannotSend: it cannot be received, or Mercurial refuses it; the message is Mercurial's.
    """
    encoding.encoding = b"UTF-8"
    ui = _interface(flags)
    try:
        _load(ui)
        repository = hg.repository(ui, os.fsencode(folder), create=not os.path.isdir(os.path.join(folder, ".hg")))
        peer = FACTORY.peer(repository, {}, os.fsencode(url))
        try:
            exchange.pull(repository, peer)
            for name, node in peer.listkeys(b"bookmarks").items():
                repository._bookmarks._set(name, binary(node))
        except error.RepoError as wrong:
            if not (may_create and isinstance(wrong.__cause__, NoSuchRepository)):
                raise
            peer = FACTORY.peer(repository, {}, os.fsencode(url))
            peer.remote.begin()
        yield LocalCopy(repository, peer)
    except (error.Abort, error.RepoError, error.StorageError) as wrong:
        raise CannotSend(b" ".join(map(bytes, wrong.args)).decode("utf-8", "replace").partition("\n")[0]) from wrong
    finally:
        for leave, arguments, named in reversed(ui._exithandlers):
            leave(*arguments, **named)


def _interface(flags: Set[str]) -> Any:
    """A configuration with what a user says of servers, and nothing else of theirs: no hooks, no extensions."""
    users = user_interface.ui.load()
    found = user_interface.ui()
    for section in (b"auth", b"hpss"):
        for name, value in users.configitems(section):
            found.setconfig(section, name, value, b"copied")
    found.setconfig(b"ui", b"ssh", users.config(b"ui", b"ssh"), b"copied")
    found.setconfig(b"ui", b"quiet", b"yes", b"smartserver")
    if flags:
        found.setconfig(b"hpss", b"debug", os.fsencode(",".join(sorted(flags))), b"smartserver")
    return found


_loaded: list[Any] = []
assert dispatch  # Mercurial is whole once this module is loaded: its revsets, for one.


def _load(ui: Any) -> None:
    """Have Mercurial know our URLs, once."""
    if not _loaded:
        _loaded.append(ui)
        extension.uisetup(ui)


class _Blobs:
    """The texts of a stream, in a file: commits name them by their marks."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the import.
        self._places: dict[bytes, tuple[int, int]] = {}
        self._end = 0

    def add(self, mark: bytes, text: bytes) -> None:
        self._places[mark] = (self._end, len(text))
        self._file.write(text)
        self._end += len(text)

    def __contains__(self, mark: bytes) -> bool:
        return mark in self._places

    def __getitem__(self, mark: bytes) -> bytes:
        offset, length = self._places[mark]
        self._file.flush()
        return os.pread(self._file.fileno(), length, offset)

    def close(self) -> None:
        self._file.close()


class StreamImport:
    """Makes changesets of the commits of a stream."""

    def __init__(self, local: LocalCopy, marks: Marks) -> None:
        """`marks`: of earlier streams; those of this one are added."""
        self._local = local
        self._repository = local.repository
        self._marks = marks
        self._blobs = _Blobs()
        self._before = local.bookmarks()
        self.branches = dict(self._before)
        """The changeset of each branch of the stream, which becomes a bookmark, and of each bookmark before."""
        self._others: dict[bytes, bytes] = {}
        """The changesets of other refs."""
        self._tags: dict[bytes, bytes] = {}
        self.submodules = self.notes = 0
        """How many were left out."""
        self._line = 0

    def run(self, stream: Callable[[], Iterable[Any]], *, force: bool) -> list[str]:
        """Read a stream, and push what it adds; returns the bookmarks that changed. `force`: they may lose changesets.

        Raises:
            BadStream: it cannot be imported; the repositories are as before.
        """
        repository = self._repository
        repository.ui.pushbuffer(error=True)  # What Mercurial says of a transaction that ends.
        try:
            with repository.lock(), repository.transaction(MADE) as transaction:
                for command in stream():
                    self._line = getattr(command, "lineno", self._line)
                    self._handle(command)
                changed = [name for name, node in self.branches.items() if self._before.get(name) != node]
                for name in [] if force else changed:
                    self._check_forward(name)
                self._write_tags()
                gone = [name for name in self._before if name not in self.branches]
                moves = [*((name, self.branches[name]) for name in changed), *((name, None) for name in gone)]
                repository._bookmarks.applychanges(repository, transaction, moves)
        finally:
            repository.ui.popbuffer()
            self._blobs.close()
        names = [*changed, *gone]
        if names or self._tags:
            self._local.push(names)
        return [name.decode("utf-8", "replace") for name in names]

    def _handle(self, command: Any) -> None:
        if isinstance(command, commands.BlobCommand):
            if command.mark:
                self._blobs.add(command.mark, command.data)
        elif isinstance(command, commands.CommitCommand):
            self._commit(command)
        elif isinstance(command, commands.ResetCommand):
            self._set(command.ref, None if command.from_ is None else self._find(command.from_))
        elif isinstance(command, commands.TagCommand):
            self._set(TAGS + command.id, self._find(command.from_))

    # ---- names

    def _set(self, ref: bytes, node: bytes | None) -> None:
        table, name = self._table(ref)
        if node is None or node == NULL:
            table.pop(name, None)
        else:
            table[name] = node

    def _table(self, ref: bytes) -> tuple[dict[bytes, bytes], bytes]:
        for start, table in ((HEADS, self.branches), (TAGS, self._tags)):
            if ref.startswith(start):
                name = ref.removeprefix(start)
                try:
                    scmutil.checknewlabel(self._repository, name, b"bookmark")
                except error.Abort as wrong:
                    raise self._bad(f"{ref.decode('utf-8', 'replace')}: {_said(wrong)}") from wrong
                return table, name
        return self._others, ref

    def _find(self, name: bytes | None) -> bytes:
        """The changeset that a stream names, by a mark, a ref or an id."""
        found: bytes | None
        name = name or b""
        if name.startswith(b":"):
            found = self._marks.get(name[1:])
        else:
            table, key = self._table(name.removesuffix(b"^0"))
            found = table.get(key)
            if found is None and len(name) == 2 * len(NULL):
                try:
                    found = binary(name)
                except ValueError:
                    found = None
        if found is None or not (found == NULL or self._repository.changelog.hasnode(found)):
            raise self._bad(f"no commit {name.decode('utf-8', 'replace')}")
        return found

    def _bad(self, why: str) -> BadStream:
        return BadStream.at(self._line, why)

    def _check_forward(self, name: bytes) -> None:
        before, after = self._before.get(name), self.branches[name]
        if before is not None and not self._repository.changelog.isancestor(before, after):
            where = f"{hexadecimal(before)[:12].decode()} to {hexadecimal(after)[:12].decode()}"
            raise BadStream(f"{name.decode('utf-8', 'replace')} would lose commits, from {where}; --force moves it")

    # ---- changesets

    def _commit(self, command: Any) -> None:
        table, name = self._table(command.ref)
        if command.ref.startswith(b"refs/notes/"):
            self.notes += 1
            return
        first = self._find(command.from_) if command.from_ is not None else table.get(name, NULL)
        merged = [self._find(each) for each in command.merges]
        author = command.author or command.committer
        extra: dict[bytes, bytes] = {}
        if command.committer != author:
            who = command.committer
            extra[b"committer"] = b"%b %d %d" % (_user(who), who.timestamp, -who.timezone)
        files = self._files(first, command.iter_files())
        node = self._make(first, merged[:1], command.message, files, author, extra)
        for another in merged[1:]:
            node = self._make(node, [another], command.message, {}, author, extra)
        if command.mark:
            self._marks[command.mark] = node
        table[name] = node

    def _make(
        self,
        first: bytes,
        merged: list[bytes],
        message: bytes,
        files: dict[bytes, _File | None],
        author: Any,
        extra: Any,
    ) -> bytes:
        def file(repository: Any, changeset: Any, path: bytes) -> Any:
            found = files[path]
            if found is None:
                return None
            return context.memfilectx(
                repository, changeset, path, found.text, found.flags == b"l", found.flags == b"x", found.source
            )

        parents = (first, merged[0] if merged else NULL)
        date = (int(author.timestamp), -author.timezone)
        made = context.memctx(
            self._repository, parents, _utf8(message), sorted(files), file, _user(author), date, extra=dict(extra)
        )
        try:
            node: bytes = self._repository.commitctx(made)
        except (error.Abort, error.StorageError) as wrong:
            raise self._bad(_said(wrong)) from wrong
        return node

    def _files(self, parent: bytes, changes: Iterable[Any]) -> dict[bytes, _File | None]:
        """What a commit makes of the files of its first parent; None of those that it removes."""
        files: dict[bytes, _File | None] = {}
        before = self._repository[parent]
        there = before.manifest()

        def below(path: bytes) -> list[bytes]:
            if path in there or path in files:
                return [path]
            start = path + b"/" if path else b""
            found = {each for each in (*there, *files) if each.startswith(start)}
            return sorted(found - {each for each in found if each in files and files[each] is None})

        def text_of(path: bytes) -> _File:
            found = files.get(path)
            if found is not None:
                return found
            file = before[path]
            return _File(file.data(), file.flags(), None)

        for change in changes:
            if isinstance(change, commands.FileModifyCommand):
                if change.mode == SUBMODULE:
                    self.submodules += 1
                    continue
                for each in () if change.path in there or change.path in files else below(change.path):
                    files[each] = None  # A folder becomes a file.
                files[self._path(change.path)] = _File(self._text(change), self._flags(change), None)
            elif isinstance(change, commands.FileDeleteCommand):
                files |= dict.fromkeys(below(change.path))
            elif isinstance(change, commands.FileDeleteAllCommand):
                files |= dict.fromkeys(below(b""))
            else:
                source, target = (
                    (change.old_path, change.new_path)
                    if isinstance(change, commands.FileRenameCommand)
                    else (change.src_path, change.dest_path)
                )
                moved = below(source)
                if not moved:
                    raise self._bad(f"no file {source.decode('utf-8', 'replace')}")
                for each in moved:
                    made = self._path(target + each[len(source) :])
                    files[made] = text_of(each)._replace(source=each if each in there else None)
                    if isinstance(change, commands.FileRenameCommand):
                        files[each] = None
        return {path: file for path, file in files.items() if file is not None or path in there}

    def _path(self, path: bytes) -> bytes:
        parts = path.split(b"/")
        if b"\n" in path or b"\r" in path or any(not part or part.lower() in (b".", b"..", b".hg") for part in parts):
            raise self._bad(f"Mercurial can have no file {path.decode('utf-8', 'replace')!r}")
        return path

    def _flags(self, change: Any) -> bytes:
        if change.mode not in _FLAGS:
            raise self._bad(f"{change.path.decode('utf-8', 'replace')}: mode {change.mode:o} is no file's")
        return _FLAGS[change.mode]

    def _text(self, change: Any) -> bytes:
        if change.data is not None:
            return bytes(change.data)
        mark = change.dataref.removeprefix(b":")
        if mark not in self._blobs:
            raise self._bad(f"{change.path.decode('utf-8', 'replace')}: no text {change.dataref.decode()}")
        return self._blobs[mark]

    # ---- tags

    def _write_tags(self) -> None:
        """Make a changeset of the tags that are new or have moved."""
        repository = self._repository
        before = next((node for node in repository.heads() if MADE in repository[node].extra()), NULL)
        text = repository[before][b".hgtags"].data() if before != NULL else b""
        known = {}
        for line in text.splitlines():
            node, _, name = line.partition(b" ")
            known[name] = binary(node)
        added = b""
        for name, node in self._tags.items():
            if known.get(name) != node:
                if name in known:
                    added += b"%b %b\n" % (hexadecimal(known[name]), name)
                added += b"%b %b\n" % (hexadecimal(node), name)
        if not added:
            return
        newest = repository[max(map(repository.changelog.rev, self._tags.values()))]
        date = newest.date()
        made = context.memctx(
            repository, (before, NULL), b"Tags of a stream", [b".hgtags"],
            lambda there, changeset, path: context.memfilectx(there, changeset, path, text + added),
            b"smartserver fast-import", date, extra={b"branch": BRANCH_OF_TAGS, b"close": b"1", MADE: b"tags"},
        )  # fmt: skip
        repository.commitctx(made)


class _File(NamedTuple):
    """A version of a file."""

    text: bytes
    flags: bytes
    source: bytes | None
    """The file that it was copied from."""


def _said(wrong: Any) -> str:
    return b" ".join(each for each in wrong.args if isinstance(each, bytes)).decode("utf-8", "replace")


def _utf8(text: bytes) -> bytes:
    """A text that is UTF-8; what is not is read as Latin-1."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return text.decode("latin-1").encode()
    return text


def _user(who: Any) -> bytes:
    name = _utf8(who.name).replace(b"\n", b" ").strip()
    return b"%b <%b>" % (name, _utf8(who.email or b"")) if who.email or name else b"unknown <>"


# ---- the other way


def export_stream(local: LocalCopy, output: IO[bytes], marks: Marks, say: Callable[[int], object]) -> None:
    """Write the stream of a repository, parents first, without the changesets that have a mark. `say` is told the
    number of those that were written."""
    repository = local.repository
    known = {node: mark for mark, node in marks.items()}
    number = max((int(mark) for mark in marks), default=0)
    refs: dict[bytes, bytes] = {}
    output.write(b"feature done\n")
    count = 0
    for rev in repository:
        changeset = repository[rev]
        if MADE in changeset.extra():
            continue
        node, ref = changeset.node(), HEADS + _ref_part(changeset.branch())
        refs[ref] = node
        if node in known:
            continue
        number += 1
        known[node] = b"%d" % number
        marks[known[node]] = node
        _write_commit(output, changeset, ref, known)
        count += 1
        say(count)
    heads = {head for head in repository.heads() if MADE not in repository[head].extra()}
    for head in sorted(heads - set(refs.values()) - set(local.bookmarks().values())):
        branch = _ref_part(repository[head].branch())
        refs[b"%b%b-%b" % (HEADS, branch, hexadecimal(head)[:12])] = head
    refs |= {HEADS + _ref_part(name): node for name, node in local.bookmarks().items()}
    refs |= {TAGS + _ref_part(name): node for name, node in repository.tags().items() if name != b"tip"}
    for ref, node in refs.items():
        if node in known:
            output.write(bytes(commands.ResetCommand(ref, b":" + known[node])) + b"\n")
    output.write(b"done\n")


def _write_commit(output: IO[bytes], changeset: Any, ref: bytes, known: Marks) -> None:
    parents = [each.node() for each in changeset.parents() if each.node() != NULL]
    author = _who(changeset.user(), *changeset.date())
    committer = _committer(changeset.extra().get(b"committer", b"")) or author
    before, after = changeset.p1().manifest(), changeset.manifest()
    files: list[Any] = []
    for path, ((_, _), (node, flags)) in sorted(before.diff(after).items()):
        if node is None:
            files.append(commands.FileDeleteCommand(path))
        else:
            files.append(commands.FileModifyCommand(path, _MODES[flags], None, changeset[path].data()))
    files.sort(key=lambda file: not isinstance(file, commands.FileDeleteCommand))  # A folder may become a file.
    if not parents:
        output.write(bytes(commands.ResetCommand(ref, None)) + b"\n")
    command = commands.CommitCommand(
        ref, known[changeset.node()], author if author != committer else None, committer,
        _message(changeset), b":" + known[parents[0]] if parents else None,
        [b":" + known[each] for each in parents[1:]], files,
    )  # fmt: skip
    output.write(bytes(command) + b"\n")


def _message(changeset: Any) -> bytes:
    """With the newline at its end, which Mercurial drops."""
    text: bytes = encoding.fromlocal(changeset.description())
    return text + b"\n" if text and not text.endswith(b"\n") else text


def _who(user: bytes, seconds: float, west: int) -> tuple[bytes, bytes, float, int]:
    name, _, rest = encoding.fromlocal(user).partition(b"<")
    if not rest and b"@" in name and b" " not in name.strip():
        name, rest = b"", name
    clean = [each.translate(None, b"<>\n").strip() for each in (name, rest.partition(b">")[0])]
    return clean[0], clean[1], int(seconds), -west


def _committer(field: bytes) -> tuple[bytes, bytes, float, int] | None:
    words = field.rsplit(b" ", 2)
    try:
        return _who(words[0], int(words[1]), int(words[2]))
    except (IndexError, ValueError):
        return None


def _ref_part(name: bytes) -> bytes:
    """A name as a part of a ref's, without what git forbids there."""
    text = re.sub(rb"[\x00-\x20~^:?*\[\\\x7f]|\.\.|@\{|^[./]|(?<=/)\.|//|[./]$|\.lock(?=/|$)", b"_", name)
    return text or b"_"
