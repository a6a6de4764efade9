"""Branches of a test, each with a copy on a server: sent there before a command, and brought back after it.

The local branch stays where it is, because the test goes on with objects that have opened it. A change that the command
makes on the server is made in the local branch as soon as the command has ended.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from breezy import errors, urlutils
from breezy.branch import Branch, BranchHooks
from breezy.controldir import ControlDir
from breezy.revision import NULL_REVISION
from breezy.transport import NoSuchFile, get_transport_from_path
from suite_breezy import hpss
from suite_servers import Server

from smartserver.plugins.breezy.mirror import _mirrors
from smartserver.plugins.breezy.push import push
from smartserver.plugins.breezy.remote import _told
from smartserver.plugins.breezy.remotes import _remotes
from smartserver.plugins.breezy.server import _servers

REFERENCE = "Bazaar-NG Branch Reference Format 1\n"
"""The format line by which `.bzr/branch` belongs to a lightweight checkout."""

REMEMBERED = re.compile(r"^(parent_location|push_location|submit_branch|bound_location) = (\S+)$", re.MULTILINE)
"""Matches a location that a branch remembers."""

BINDING = "bound = True\nbound_location = {}\n"


class State(NamedTuple):
    """The properties that both copies of a branch share after a command."""

    revno: int
    tip: bytes
    tags: dict[str, bytes]
    options: bytes


def is_branch(path: Path) -> bool:
    """Tell whether a folder has a branch, and not a lightweight checkout."""
    named = path / ".bzr" / "branch" / "format"
    return named.is_file() and named.read_text(errors="replace") != REFERENCE


def forget() -> None:
    """Make the plugin forget everything, as each command starts in a new process."""
    for server in _servers.values():
        server.close()
    _servers.clear()
    hpss.opened.clear()
    for kept in (_mirrors, _remotes, _told):
        kept.clear()


@contextmanager
def unseen() -> Iterator[None]:
    """Hide the harness from the test: run no hooks of branches, and log nothing."""
    hooks, Branch.hooks = Branch.hooks, BranchHooks()
    logging.disable(logging.CRITICAL)
    forget()
    try:
        yield
    finally:
        forget()
        logging.disable(logging.NOTSET)
        Branch.hooks = hooks


class Places:
    """The branches below the folder of a test, and their copies below a folder of the server."""

    def __init__(self, server: Server, folder: Path, number: int) -> None:
        self.folder = folder
        self.is_used = False
        self._server = server
        self._name = f"{number}/"
        self._known: dict[Path, State | None] = {}
        self._met: set[Path] = set()

    @property
    def url(self) -> str:
        """The URL that stands for the test's folder."""
        return self._server.url + self._name

    def url_of(self, path: Path) -> str:
        """Return the URL that stands for a folder of the test."""
        relative = path.relative_to(self.folder).as_posix()
        return self.url if relative == "." else self.url + urlutils.escape(relative) + "/"

    def find(self, location: str, base: Path) -> tuple[Path, str] | None:
        """Return the branch that a location names or lies in, and the rest of the location; None if there is none."""
        if location.startswith("file://"):
            try:
                location = urlutils.local_path_from_url(location)
            except urlutils.InvalidURL:
                return None
        path = Path(os.path.normpath(base / location))
        if not path.is_relative_to(self.folder):
            return None
        for above in (path, *path.parents):
            if is_branch(above):
                return above, path.relative_to(above).as_posix().removeprefix(".")
            if above == self.folder:
                break
        return None

    # -- before a command

    def replace(self, location: str, base: Path, *, inside: bool = False) -> str | None:
        """Send the branch at a location, or (`inside`) around it, and return the URL; None if there is no branch."""
        found = self.find(location, base)
        if found is None or (found[1] and not inside):
            return None
        path, rest = found
        self.send(path)
        return self.url_of(path).rstrip("/") + ("/" + urlutils.escape(rest) if rest else "")

    def make(self, location: str, base: Path) -> str | None:
        """Return the URL for a free location below the test's folder; else None."""
        path = Path(os.path.normpath(base / location))
        if "://" in location or path.exists() or not path.is_relative_to(self.folder) or path == self.folder:
            return None
        self._meet(path)
        return self.url_of(path).rstrip("/")

    def _meet(self, path: Path) -> None:
        self._met.add(path)
        self._known.setdefault(path, None)
        self.is_used = True

    def send(self, path: Path) -> None:
        """Make the copy on the server equal to a branch of the test."""
        self._meet(path)
        with unseen():
            local = Branch.open(str(path))
            with local.lock_read():
                state = _state(local)
                if state == self._known[path]:
                    return
                remote = self._remote(path, local)
                if remote is None:
                    return
                _become(remote, state, local)
            self._known[path] = state

    def _remote(self, path: Path, local: Branch | None) -> Branch | None:
        """Return the copy on the server. With `local` a missing copy is made if possible. None: there is none."""
        if self._server.side == "hpss":
            control = ControlDir.open(self.url_of(path))
            if local is not None and local.last_revision() != NULL_REVISION:
                push(local, control.unasked(), overwrite=True, hooks=False)
            try:
                remote = ControlDir.open(self.url_of(path)).open_branch()
                remote.last_revision()
            except errors.NotBranchError:
                return None
            return remote
        place = self._server.root / self._name / path.relative_to(self.folder)
        if local is not None and not is_branch(place):
            get_transport_from_path(str(place)).create_prefix()
            made = local.controldir.cloning_metadir().initialize(str(place))
            made.create_repository()
            made.create_branch()
        return Branch.open(str(place)) if is_branch(place) else None

    # -- after it

    def bring(self) -> None:
        """Make the branches of the test equal to the copies that commands have used."""
        with unseen():
            for path in sorted(self._met):
                before = self._known[path]
                remote = self._remote(path, None)
                if remote is None:
                    if before is not None and is_branch(path):
                        ControlDir.open(str(path)).destroy_branch()
                    self._known[path] = None
                    continue
                with remote.lock_read():
                    state = _state(remote)
                    if state != before:
                        _become(_local(path, remote), state, remote)
                    self._known[path] = state
        self._met.clear()

    # -- what is remembered

    def point(self, path: Path) -> None:
        """Replace the locations that a branch remembers by those on the server."""
        options = path / ".bzr" / "branch" / "branch.conf"
        if not options.exists():
            return

        def pointed(found: re.Match[str]) -> str:
            url = self.replace(urlutils.unescape(found[2]), path)
            return found[0] if url is None else f"{found[1]} = {url}"

        text = options.read_text()
        options.write_text(REMEMBERED.sub(pointed, text))

    def restore(self) -> None:
        """Replace all locations on the server by those in the test's folder."""
        for pattern in ("branch.conf", "location"):
            for file in self.folder.rglob(f".bzr/branch/{pattern}"):
                text = file.read_text()
                if self.url in text:
                    file.write_text(self.local(text, urlutils.local_path_to_url(str(self.folder)) + "/"))

    def local(self, text: str, folder: str) -> str:
        """Return a text with `folder` in place of the server's URL."""
        return text.replace(self.url, folder)

    # -- the branch a command works in

    def reference(self, path: Path) -> None:
        """Make a tree a lightweight checkout of its branch's copy."""
        self.send(path)
        control = path / ".bzr"
        for name in ("branch", "repository"):
            if (control / name).exists():
                (control / name).rename(control / f"{name}.own")
        (control / "branch").mkdir()
        (control / "branch" / "format").write_text(REFERENCE)
        (control / "branch" / "location").write_text(self.url_of(path).rstrip("/"))

    def dereference(self, path: Path) -> None:
        """Undo `reference`, unless the command has made the tree a checkout of another branch."""
        control = path / ".bzr"
        where = control / "branch" / "location"
        if where.exists() and where.read_text().strip().rstrip("/") == self.url_of(path).rstrip("/"):
            shutil.rmtree(control / "branch")
            for name in ("branch", "repository"):
                if (control / f"{name}.own").exists():
                    (control / f"{name}.own").rename(control / name)
        else:
            self._met.discard(path)
            for name in ("branch", "repository"):
                shutil.rmtree(control / f"{name}.own", ignore_errors=True)

    def bind(self, path: Path) -> None:
        """Bind a branch to its copy."""
        self.send(path)
        options = path / ".bzr" / "branch" / "branch.conf"
        text = options.read_text() if options.exists() else ""
        options.write_text(BINDING.format(self.url_of(path)) + text)

    def unbind(self, path: Path) -> None:
        """Undo `bind`."""
        options = path / ".bzr" / "branch" / "branch.conf"
        if options.exists():
            lines = options.read_text().splitlines(keepends=True)
            own = ("bound = ", "bound_location = ")
            options.write_text("".join(line for line in lines if not line.startswith(own)))


def _state(branch: Any) -> State:
    revno, tip = branch.last_revision_info()
    return State(revno, tip, dict(branch.tags.get_tag_dict()), _options(branch))


def _options(branch: Any) -> bytes:
    store = branch._get_config_store()
    try:
        content: bytes = store.transport.get_bytes(store.file_name)
    except NoSuchFile:
        return b""
    return content


def _become(branch: Any, state: State, source: Any) -> None:
    """Make a branch equal to another."""
    with branch.lock_write():
        if branch.last_revision_info() != (state.revno, state.tip):
            branch.repository.fetch(source.repository, state.tip)
            branch.set_last_revision_info(state.revno, state.tip)
        if branch.tags.get_tag_dict() != state.tags:
            branch.tags._set_tag_dict(state.tags)
    if _options(branch) != state.options:
        store = branch._get_config_store()
        store.transport.put_bytes(store.file_name, state.options)


def _local(path: Path, remote: Any) -> Branch:
    """Return the branch of the test, and make it if a command has made its copy."""
    if not is_branch(path):
        get_transport_from_path(str(path)).create_prefix()
        made = remote.controldir.cloning_metadir().initialize(str(path))
        made.create_repository()
        made.create_branch()
    return Branch.open(str(path))
