"""Imports a stream of git fast-import into a Mercurial repository on a server, and exports such a repository.

A local repository is pulled from the server. Mercurial creates the changesets of the stream in it, and they are pushed
in one request.

| stream | Mercurial |
|---|---|
| a branch, `refs/heads/NAME` | the bookmark NAME; all changesets are on the branch `default` |
| tags | lines of a `.hgtags` in a closed branch of its own, `tags`: the history itself gets no changeset |
| a commit with more than two parents | several changesets, each of which merges one more |
| author and committer | the author is the user; another committer is in the field `committer`, as hg-git has it |
| submodules, notes | left out, and counted |
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import IO, Any, Final

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
from smartserver.vcs.stream import FILE, HEADS, LINK, NOTES, PROGRAM, TAGS, FileChanges, Files, FileVersion, Refs, claim

BRANCH_OF_TAGS: Final = b"tags"
IMPORT_FIELD: Final = b"fast-import"
"""The field in the extras of the changesets in the branch of tags, by which they are recognized."""

_MODES: Final = {b"": FILE, b"x": PROGRAM, b"l": LINK}

Marks = dict[bytes, bytes]
"""The ids of changesets in hexadecimal, by their marks."""


class LocalCopy:
    """A local copy of a repository on a server, and the peer to which changes are pushed."""

    def __init__(self, repository: Any, peer: Any, bookmarks: Mapping[bytes, bytes]) -> None:
        """`bookmarks`: the bookmarks of the server."""
        self.repository = repository
        self.bookmarks = bookmarks
        self._peer = peer

    def push(self, bookmarks: Mapping[bytes, bytes | None], more: Iterable[bytes]) -> None:
        """Push bookmarks with their changesets (None deletes one), and `more` changesets, in one request.

        Raises:
            CannotSend: a bookmark was moved meanwhile.
        """
        repository = self.repository
        with repository.lock(), repository.transaction(IMPORT_FIELD) as transaction:
            repository._bookmarks.applychanges(repository, transaction, list(bookmarks.items()))
        heads = [*(node for node in bookmarks.values() if node is not None), *more]
        repository.ui.pushbuffer(error=True)
        try:
            done = exchange.push(
                repository, self._peer, force=True, newbranch=True, revs=heads or [NULL], bookmarks=list(bookmarks)
            )
        finally:
            said = repository.ui.popbuffer().decode("utf-8", "replace").strip()
        if done.bkresult or done.cgresult == 0:
            raise CannotSend(said.replace("\n", "; ") or "a bookmark was moved meanwhile: try again")


@contextmanager
def local_copy(folder: str, url: str, flags: Set[str], *, may_create: bool) -> Iterator[LocalCopy]:
    """Yield a repository in a folder, with the whole content of the repository at `url`. `may_create`: True if that
    repository may be missing."""
    encoding.encoding = b"UTF-8"
    encoding.environ[b"HGRCSKIPREPO"] = b"1"  # The configuration in a kept folder is not read.
    ui = _interface(flags)
    try:
        _load(ui)
        repository = hg.repository(ui, os.fsencode(folder), create=not os.path.isdir(os.path.join(folder, ".hg")))
        peer = FACTORY.peer(repository, {}, os.fsencode(url))
        bookmarks: dict[bytes, bytes] = {}
        try:
            exchange.pull(repository, peer)
            bookmarks = {name: binary(node) for name, node in peer.listkeys(b"bookmarks").items()}
        except error.RepoError as cause:
            if not (may_create and isinstance(cause.__cause__, NoSuchRepository)):
                raise
            peer = FACTORY.peer(repository, {}, os.fsencode(url))
            peer.remote.begin()
        # Bookmarks that an earlier run left here, and could not push, are not on the server.
        changes: list[tuple[bytes, bytes | None]] = [(name, None) for name in repository._bookmarks]
        changes += [(name, node) for name, node in bookmarks.items() if repository.changelog.hasnode(node)]
        with repository.lock(), repository.transaction(IMPORT_FIELD) as transaction:
            repository._bookmarks.applychanges(repository, transaction, changes)
        yield LocalCopy(repository, peer, bookmarks)
    except (error.Abort, error.RepoError, error.StorageError) as cause:
        raise CannotSend(_message(cause).partition("\n")[0]) from cause
    finally:
        for leave, arguments, named in reversed(ui._exithandlers):
            leave(*arguments, **named)


def _interface(flags: Set[str]) -> Any:
    """Return a configuration with a user's settings for servers, but without any other settings of the user: no hooks,
    no extensions."""
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
assert dispatch  # Importing this module completes Mercurial, for example its revsets.


def _load(ui: Any) -> None:
    """Register our URLs with Mercurial, once."""
    if not _loaded:
        _loaded.append(ui)
        extension.uisetup(ui)


class _Texts:
    """The texts of a stream, stored in a file, because the texts of a commit may not fit into memory."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the import.
        self.marked: dict[bytes, tuple[int, int]] = {}
        """The offset and length of each text with a mark, by its mark."""
        self._end = 0

    def add(self, text: bytes) -> tuple[int, int]:
        """Store a text. Return its offset and length in the file."""
        place = self._end, len(text)
        self._file.write(text)
        self._end += len(text)
        return place

    def read(self, place: tuple[int, int]) -> bytes:
        self._file.flush()
        offset, length = place
        return os.pread(self._file.fileno(), length, offset)

    def close(self) -> None:
        self._file.close()


class StreamImport:
    """Creates changesets from the commits of a stream."""

    def __init__(self, local: LocalCopy, marks: Marks, *, force: bool) -> None:
        """`marks`: the marks of earlier streams, to which the marks of this stream are added. `force`: bookmarks may
        lose changesets, and tags may move."""
        self._local = local
        self._repository = local.repository
        self._force = force
        there = {HEADS + name: hexadecimal(node) for name, node in local.bookmarks.items()}
        self._tagged = {name: hexadecimal(node) for name, node in self._repository.tags().items() if name != b"tip"}
        there |= {TAGS + name: node for name, node in self._tagged.items()}
        self._refs = Refs(there, marks)
        self._texts = _Texts()
        self._new_tags: list[bytes] = []
        self.submodules = self.notes = self.tags = 0
        """The number of submodules, notes and tags that were left out."""
        self._line = 0

    def read(self, stream: Callable[[], Iterable[Any]]) -> None:
        """Import a stream into the local repository. `stream`: returns the commands of the stream."""
        repository = self._repository
        repository.ui.pushbuffer(error=True)  # Hide Mercurial's messages at the end of a transaction.
        try:
            with repository.lock(), repository.transaction(IMPORT_FIELD):
                for command in stream():
                    self._line = command.lineno
                    self._handle(command)
                if not self._force:
                    self._check_forward()
                self._write_tags()
        finally:
            repository.ui.popbuffer()
            self._texts.close()

    def push(self) -> list[str]:
        """Push the new changesets in one request, and return the names of the refs that changed."""
        moves: dict[bytes, bytes | None] = {
            ref.removeprefix(HEADS): binary(node) for ref, node in self._refs.changed().items() if ref.startswith(HEADS)
        }
        gone = [ref for ref in self._refs.gone & self._refs.there.keys() if ref.startswith(HEADS)]
        moves |= {ref.removeprefix(HEADS): None for ref in gone}
        tags = [ref.removeprefix(TAGS) for ref in self._refs.changed() if ref.startswith(TAGS)]
        if moves or tags:
            self._local.push(moves, self._new_tags)
        return [name.decode("utf-8", "replace") for name in (*moves, *tags)]

    def _handle(self, command: Any) -> None:
        refs = self._refs
        if isinstance(command, commands.BlobCommand):
            place = self._texts.add(command.data)
            if command.mark:
                self._texts.marked[command.mark] = place
        elif isinstance(command, commands.CommitCommand):
            self._commit(command)
        elif isinstance(command, commands.ResetCommand):
            self._check_name(command.ref)
            if command.from_ is None:
                refs.reset(command.ref)
            elif command.from_ == b"0" * len(command.from_):
                refs.delete(command.ref)
            else:
                refs.set(command.ref, self._find(command.from_))
        elif isinstance(command, commands.TagCommand):
            self._check_name(TAGS + command.id)
            refs.set(TAGS + command.id, self._find(command.from_))

    def _check_name(self, ref: bytes) -> None:
        for start in (HEADS, TAGS):
            if ref.startswith(start):
                try:
                    scmutil.checknewlabel(self._repository, ref.removeprefix(start), b"bookmark")
                except error.Abort as cause:
                    raise self._bad(f"{ref.decode('utf-8', 'replace')}: {_message(cause)}") from cause

    def _find(self, name: bytes | None) -> bytes:
        name = name or b""
        try:
            found = self._refs.find(name)
        except LookupError as cause:
            if len(name) != 2 * len(NULL):
                raise self._bad(str(cause)) from None
            found = name
        try:
            is_here = self._repository.changelog.hasnode(binary(found))
        except ValueError:
            is_here = False
        if not is_here:
            raise self._bad(f"no commit {name.decode('utf-8', 'replace')}")
        return found

    def _bad(self, why: str) -> BadStream:
        return BadStream.at(self._line, why)

    def _check_forward(self) -> None:
        changelog = self._repository.changelog
        for ref in self._refs.gone & self._refs.there.keys():
            raise BadStream(f"{ref.decode('utf-8', 'replace')} would be deleted; --force deletes it")
        for ref, after in self._refs.changed().items():
            before = self._refs.there.get(ref)
            if before is None or (ref.startswith(HEADS) and changelog.isancestor(binary(before), binary(after))):
                continue
            where = f"from {before[:12].decode()} to {after[:12].decode()}"
            what = "would lose commits" if ref.startswith(HEADS) else "would move"
            raise BadStream(f"{ref.decode('utf-8', 'replace')} {what}, {where}; --force moves it")

    # ---- changesets

    def _commit(self, command: Any) -> None:
        if command.ref.startswith(NOTES):
            self.notes += 1
            return
        self._check_name(command.ref)
        named = self._refs.parent(command.ref) if command.from_ is None else self._find(command.from_)
        first = NULL if named is None else binary(named)
        merged = [binary(self._find(merge)) for merge in command.merges]
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
            self._refs.marks[command.mark] = hexadecimal(node)
        self._refs.set(command.ref, hexadecimal(node))

    def _make(
        self, first: bytes, merged: list[bytes], message: bytes, files: Files, author: Any, extra: Mapping[bytes, bytes]
    ) -> bytes:
        def file(repository: Any, changeset: Any, path: bytes) -> Any:
            found = files[path]
            if found is None:
                return None
            return context.memfilectx(
                repository, changeset, path, found.text(), found.mode == LINK, found.mode == PROGRAM, found.source
            )

        parents = (first, merged[0] if merged else NULL)
        date = (int(author.timestamp), -author.timezone)
        made = context.memctx(
            self._repository, parents, _utf8(message), sorted(files), file, _user(author), date, extra=dict(extra)
        )
        try:
            node: bytes = self._repository.commitctx(made)
        except (error.Abort, error.StorageError) as cause:
            raise self._bad(_message(cause)) from cause
        return node

    def _files(self, parent: bytes, changes: Iterable[Any]) -> Files:
        files = FileChanges(_Before(self._repository[parent]), b".hg")
        for change in changes:
            try:
                self.submodules += not files.apply(change, self._text_of)
            except ValueError as cause:
                raise self._bad(str(cause)) from None
        return files.result()

    def _text_of(self, change: Any) -> Callable[[], bytes]:
        if change.data is not None:
            place = self._texts.add(change.data)
        else:
            found = self._texts.marked.get(change.dataref.removeprefix(b":"))
            if found is None:
                raise ValueError(f"no text {change.dataref.decode('utf-8', 'replace')}")
            place = found
        return lambda: self._texts.read(place)

    # ---- tags

    def _write_tags(self) -> None:
        """Create a changeset with the tags that are new or have moved, if any."""
        repository = self._repository
        tags = {ref.removeprefix(TAGS): node for ref, node in self._refs.changed().items() if ref.startswith(TAGS)}
        if not tags:
            return
        before = next((node for node in repository.heads() if IMPORT_FIELD in repository[node].extra()), NULL)
        text = repository[before][b".hgtags"].data() if before != NULL else b""
        for name, node in tags.items():
            if name in self._tagged:  # The old line tells Mercurial that the tag has moved.
                text += b"%b %b\n" % (self._tagged[name], name)
            text += b"%b %b\n" % (node, name)
        newest = repository[max(repository.changelog.rev(binary(node)) for node in tags.values())]

        def file(there: Any, changeset: Any, path: bytes) -> Any:
            return context.memfilectx(there, changeset, path, text)

        extra = {b"branch": BRANCH_OF_TAGS, b"close": b"1", IMPORT_FIELD: b"tags"}
        made = context.memctx(
            repository, (before, NULL), b"Tags of a stream", [b".hgtags"], file, b"smartserver fast-import",
            newest.date(), extra=extra,
        )  # fmt: skip
        self._new_tags = [repository.commitctx(made), *map(binary, tags.values())]


class _Before:
    """The files of a changeset, in the form that `FileChanges` needs."""

    def __init__(self, changeset: Any) -> None:
        self._changeset = changeset
        self._manifest = changeset.manifest()

    def has(self, path: bytes) -> bool:
        return path in self._manifest

    def has_folder(self, path: bytes) -> bool:
        return bool(self._manifest.hasdir(path))

    def paths(self, folder: bytes) -> Iterable[bytes]:
        start = folder + b"/" if folder else b""
        return (file_path for file_path in self._manifest if file_path.startswith(start))

    def file(self, path: bytes) -> FileVersion:
        file = self._changeset[path]
        return FileVersion(file.data, _MODES[file.flags()], None)


def _message(cause: Any) -> str:
    return b" ".join(part for part in cause.args if isinstance(part, bytes)).decode("utf-8", "replace")


def _utf8(text: bytes) -> bytes:
    """Return a text in UTF-8. A text that is not valid UTF-8 is converted from Latin-1."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return text.decode("latin-1").encode()
    return text


def _user(who: Any) -> bytes:
    name = _utf8(who.name).replace(b"\n", b" ").strip()
    return b"%b <%b>" % (name, _utf8(who.email or b"")) if who.email or name else b"unknown <>"


# ---- export


def export_stream(local: LocalCopy, output: IO[bytes], marks: Marks, say: Callable[[int], object]) -> None:
    """Write the stream of a repository, parents first, without the changesets that have a mark. `say` is called with
    the number of changesets written so far."""
    repository = local.repository
    output.write(b"feature done\n")
    refs = _refs_of(local)
    working = next(iter(refs), b"")
    known = {binary(node): mark for mark, node in marks.items()}
    number = max((int(mark) for mark in marks), default=0)
    count = 0
    for rev in repository:
        changeset = repository[rev]
        node = changeset.node()
        if node in known or IMPORT_FIELD in changeset.extra():
            continue
        number += 1
        known[node] = b"%d" % number
        marks[known[node]] = hexadecimal(node)
        _write_commit(output, changeset, working, known)
        count += 1
        say(count)
    for ref, node in refs.items():
        output.write(bytes(commands.ResetCommand(ref, b":" + known[node])) + b"\n")
    output.write(b"done\n")


def _refs_of(local: LocalCopy) -> dict[bytes, bytes]:
    """Return the refs of a stream with their changesets: bookmarks, named branches, heads that have neither, and
    tags."""
    repository = local.repository
    refs: dict[bytes, bytes] = {}
    for name, node in local.bookmarks.items():
        claim(refs, HEADS + name, node, hexadecimal(node)[:12])
    tips = {}
    for rev in repository:
        changeset = repository[rev]
        if IMPORT_FIELD not in changeset.extra():
            tips[changeset.branch()] = changeset.node()
    heads = [head for head in repository.heads() if IMPORT_FIELD not in repository[head].extra()]
    for branch, node in [*tips.items(), *((repository[head].branch(), head) for head in heads)]:
        if node not in refs.values():
            claim(refs, HEADS + branch, node, hexadecimal(node)[:12])
    for name, node in repository.tags().items():
        if name != b"tip" and IMPORT_FIELD not in repository[node].extra():
            claim(refs, TAGS + name, node, hexadecimal(node)[:12])
    return refs


def _write_commit(output: IO[bytes], changeset: Any, ref: bytes, known: Mapping[bytes, bytes]) -> None:
    parents = [parent.node() for parent in changeset.parents() if parent.node() != NULL]
    author = _who(changeset.user(), *changeset.date())
    committer = _committer(changeset.extra().get(b"committer", b"")) or author
    if not parents:
        output.write(bytes(commands.ResetCommand(ref, None)) + b"\n")
    text: bytes = encoding.fromlocal(changeset.description())
    command = commands.CommitCommand(
        ref, known[changeset.node()], author if author != committer else None, committer,
        text + b"\n" if text and not text.endswith(b"\n") else text,  # Mercurial drops the newline at the end.
        b":" + known[parents[0]] if parents else None, [b":" + known[parent] for parent in parents[1:]], [],
    )  # fmt: skip
    output.write(bytes(command) + b"\n")
    changes = sorted(changeset.p1().manifest().diff(changeset.manifest()).items())
    for path, (_, (node, _)) in changes:  # First: a folder may take the place of a file.
        if node is None:
            output.write(bytes(commands.FileDeleteCommand(path)) + b"\n")
    for path, (_, (node, flags)) in changes:
        if node is not None:
            change = commands.FileModifyCommand(path, _MODES[flags], None, changeset[path].data())
            output.write(bytes(change) + b"\n")


def _who(user: bytes, seconds: float, west: int) -> tuple[bytes, bytes, float, int]:
    name, _, rest = encoding.fromlocal(user).partition(b"<")
    if not rest and b"@" in name and b" " not in name.strip():
        name, rest = b"", name
    clean = [part.translate(None, b"<>\n").strip() for part in (name, rest.partition(b">")[0])]
    return clean[0], clean[1], int(seconds), -west


def _committer(field: bytes) -> tuple[bytes, bytes, float, int] | None:
    words = field.rsplit(b" ", 2)
    try:
        return _who(words[0], int(words[1]), int(words[2]))
    except (IndexError, ValueError):
        return None
