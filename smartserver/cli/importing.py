"""`smartserver import` makes one commit of a folder, on top of a branch, and pushes it.

The client reads the keys of the branch's files and trees in one request, and pushes the commit in a second one. After a
push it caches the keys, beside its other knowledge of the repository. The next import then needs no read, unless
another client moved the branch.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
from collections.abc import Mapping, Set
from datetime import datetime

import click
import msgspec

from smartserver.cli.copying import on_terminal, repository_at
from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.place import count
from smartserver.cli.progress import CountLine
from smartserver.cli.user import user
from smartserver.client.push import PushRequest
from smartserver.client.replace import new_file
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, RefUpdate
from smartserver.errors import (
    DivergedBranches,
    MissingParents,
    MissingReference,
    MissingRevision,
    NoSuchPart,
    NoSuchRepository,
    shown,
)
from smartserver.records.browse import ContentStream, TreeSelector, encode_selector
from smartserver.records.keys import KeyTable
from smartserver.records.model import Key, RevisionId
from smartserver.records.varint import Malformed
from smartserver.vcs.base import VcsError
from smartserver.vcs.git.folder import FolderCommit, FolderTree, commit_text
from smartserver.vcs.git.names import HEAD, HEADS
from smartserver.vcs.git.system import GIT
from transports.errors import CodedError

NEW_BRANCH = HEADS + b"main"
NEW_VCS = "git sha1"

STALE = (DivergedBranches, MissingParents, MissingReference, MissingRevision, NoSuchRepository)
"""Refusals of a push whose reason may be stale refs in the cache."""

_AUTHOR = re.compile(r"\s*([^<>\n\0]*?)\s*<([^<>\n\0]*)>\s*")
_NOT_IN_NAMES = re.compile(r"[<>\n\0]")


class Base(msgspec.Struct, array_like=True):
    """The tip of a branch and the keys of all files and folders in its tree. `tip` is empty for a missing branch."""

    branch: bytes
    tip: RevisionId = b""
    root: Key = b""
    keys: bytes = b""
    """The keys of all files and folders, concatenated. Each is as long as `root`."""
    is_remembered: bool = False

    def table(self) -> KeyTable:
        """Return the keys as a table for look-ups."""
        found = KeyTable()
        width = len(self.root) or 1
        for at in range(0, len(self.keys), width):
            found.number(self.keys[at : at + width])
        return found


_bases = msgspec.msgpack.Decoder(Base)


def import_folder(
    folder: str, place: str, branch: str, message: str | None, author: str | None, flags: Set[str]
) -> None:
    """Commit a folder to a branch of the repository at a place, and print the outcome."""
    text = (message if message is not None else f"Import {os.path.basename(os.path.abspath(folder))}").strip()
    if not text or "\0" in text:
        raise click.UsageError("the message is empty" if not text else "the message has a NUL byte")
    identity = _identity(author, os.environ)
    with one_line(place), repository_at(place, flags) as remote:
        remote.sent = on_terminal("import")
        job = FolderImport(folder, place, branch, remote)
        try:
            job.run(os.fsencode(text), identity)
        except VcsError as error:
            raise CommandError(str(error)) from error


class FolderImport:
    """One import into one repository."""

    def __init__(self, folder: str, place: str, branch: str, remote: RemoteRepository) -> None:
        self._folder = folder
        self._place = place
        self._remote = remote
        name = os.fsencode(branch)
        self._named = name if not name or name.startswith(HEADS) else HEADS + name
        """The full name of the branch that the user named; empty for the default branch."""
        problem = GIT[NEW_VCS].ref_problem(self._named) if name else ""
        if branch == HEAD or (name.startswith(b"refs/") and not name.startswith(HEADS)):
            problem = "git means another ref by it"
        if problem:
            raise CommandError(f"{shown(name)} cannot be a branch: {problem}")
        self._tree: FolderTree | None = None

    def run(self, message: bytes, identity: bytes) -> None:
        """Push the commit. The first attempt uses the cached state of the branch."""
        base = self._remembered()
        while True:
            asked = base is None
            base = base or self._ask()
            tree = self._read()
            if tree.root == base.root and (asked or self._is_still(base)):
                click.echo("nothing new")
                return
            if tree.root != base.root:
                if not tree.files:
                    raise CommandError(f"{self._folder} has no files")
                parents = [base.tip] if base.tip else []
                who = identity + _date()
                commit = FolderCommit(tree, parents, commit_text(tree.root, parents, who, who, message), base.table())
                if self._push(base, commit, asked=asked):
                    return
            base = None  # The cached state is stale.

    def _read(self) -> FolderTree:
        vcs = self._remote.knowledge.vcs or NEW_VCS
        if self._tree is None or self._tree.vcs != vcs:
            line = CountLine("import", sys.stderr.isatty())
            self._tree = FolderTree(self._folder, vcs, line)
            line.end()
        return self._tree

    def _push(self, base: Base, commit: FolderCommit, *, asked: bool) -> bool:
        """Push the commit and print the outcome. Return False if it was refused and the cache may be stale."""
        assert self._tree is not None
        new = None
        if not self._remote.knowledge.met:
            new = NewRepository(NEW_VCS, GIT[NEW_VCS].kinds, {HEAD: base.branch})
        try:
            done = self._remote.push(PushRequest([RefUpdate(base.branch, commit.id)], commit, new))
            refusal = done.error()
            if refusal is not None:
                raise refusal
        except STALE as error:
            if not asked:
                return False
            if isinstance(error, DivergedBranches):
                why = f"{shown(base.branch)} was moved meanwhile; nothing was changed: try again"
                raise CommandError(why) from error
            raise
        files, sent = len(self._tree.files), len(commit.files)
        made = " (a new repository)" if done.created else "" if base.tip else " (a new branch)"
        click.echo(f"{commit.id.hex()} on {shown(base.branch)}: {count(files, 'file')}, {sent:,} sent{made}")
        self._remember(Base(base.branch, commit.id, self._tree.root, _joined(self._tree.keys), is_remembered=True))
        return True

    # -- the branch on the server

    def _ask(self) -> Base:
        """Read the keys of the branch's tree from the server."""
        known = self._remote.knowledge
        selector = TreeSelector(os.fsdecode(self._named), deep=True, keys=True)
        try:
            content = self._remote.read(encode_selector(selector), refs=[])
            self._check_vcs()
            keys = [entry.key for entry in ContentStream(content.body).entries(texts=False)]
        except NoSuchRepository:
            known.forget()
            return Base(self._named or NEW_BRANCH)
        except Malformed as error:
            raise CommandError(f"{self._place}: the server's answer is damaged: {error}") from None
        except NoSuchPart:
            self._check_vcs()
            branch = self._named or known.settings.get(HEAD, NEW_BRANCH)
            if known.ref(branch) is not None:
                raise
            return Base(branch)
        except CodedError:
            self._check_vcs()
            raise
        branch = self._named or known.settings.get(HEAD, NEW_BRANCH)
        value = known.ref(branch)
        if value is None or not keys:
            raise CommandError(f"{self._place}: the server's answer is damaged: it has no tree of {shown(branch)}")
        return Base(branch, value[0].id, keys[0], b"".join(keys))

    def _check_vcs(self) -> None:
        vcs = self._remote.knowledge.vcs
        if vcs and vcs not in GIT:
            raise CommandError(
                f"{self._place} is a repository of {vcs}: a folder can be imported only into a git repository"
            )

    def _is_still(self, base: Base) -> bool:
        """Ask the server whether a branch is still at the cached tip."""
        try:
            self._remote.learn_refs()
        except NoSuchRepository:
            return False
        value = self._remote.knowledge.ref(base.branch)
        return value is not None and value[0].id == base.tip

    # -- the cached state

    def _remembered(self) -> Base | None:
        known = self._remote.knowledge
        path = self._path
        if path is None or not known.met or known.vcs not in GIT:
            return None
        with contextlib.suppress(OSError, msgspec.DecodeError), open(path, "rb") as file:
            base = _bases.decode(file.read())
            value = known.ref(base.branch)
            if (
                value is not None
                and value[0].id == base.tip
                and base.branch == (self._named or known.settings.get(HEAD))
            ):
                return base
        return None

    def _remember(self, base: Base) -> None:
        if self._path is not None:
            # The push is done, so a full disk must not fail the command.
            with contextlib.suppress(OSError), new_file(self._path) as file:
                file.write(msgspec.msgpack.encode(base))

    @property
    def _path(self) -> str | None:
        known = self._remote.knowledge.path
        return None if known is None else known + ".tree"


def _joined(keys: KeyTable) -> bytes:
    return b"".join([keys.key(number) for number in range(len(keys))])


def _identity(author: str | None, environment: Mapping[str, str]) -> bytes:
    """Return the author as `NAME <EMAIL> `, the form in a commit."""
    if author is not None:
        found = _AUTHOR.fullmatch(author)
        if found is None:
            raise click.UsageError(f"--author is 'NAME <EMAIL>', got {author!r}")
        name, email = found[1], found[2]
    else:
        name = environment.get("GIT_AUTHOR_NAME") or user()
        email = environment.get("GIT_AUTHOR_EMAIL") or f"{user()}@{socket.gethostname()}"
    name, email = (_NOT_IN_NAMES.sub("", each).strip() for each in (name, email))
    return os.fsencode(f"{name or email} <{email}> ")


def _date() -> bytes:
    """Return the present time and time zone in the form of a git commit."""
    now = datetime.now().astimezone()
    return b"%d %s" % (int(now.timestamp()), now.strftime("%z")[:5].encode())
