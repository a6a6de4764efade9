"""The remote helper of the git suite: a repository of a test is served over hpss for the length of one git command.

Before the command the repository's refs and HEAD are copied to the server, with the objects they need; then
`git-remote-hpss` runs as git runs it; after it the refs that a push changed are copied back. So each remote command of
a test goes over hpss, and the test may look into the repository before and after.

The other work of a git server (hooks, settings of the repository) is not done.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from smartserver.cli.git_remote_run import serve
from smartserver.cli.session import client_for
from smartserver.client.knowledge import Knowledge
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.session import Tool
from smartserver.client.updates import RefUpdate
from smartserver.plugins.git.fetch import Fetch
from smartserver.plugins.git.options import Options
from smartserver.plugins.git.terminal import Terminal
from smartserver.plugins.git.wants import Wants
from smartserver.store.repository import PackRepository
from smartserver.vcs.base import VcsError
from smartserver.vcs.git.read import plan
from smartserver.vcs.git.repository import GitRepository
from smartserver.verbs.repository_configure import ConfigureRequest, repository_configure
from smartserver.verbs.repository_create import CreateRequest, KindField, repository_create
from smartserver.verbs.rules import Rule
from transports.errors import CodedError
from transports.local import LocalTransport

if TYPE_CHECKING:
    from smartserver.client.call import Client
    from smartserver.client.places import Place
    from smartserver.records.model import Plan

NO_BRANCH = b"refs/heads/HEAD"
"""The server's HEAD where the repository's HEAD names no branch: the server has no detached HEAD."""

DAEMON_ROOT = "repo"
"""The folder, below that of a test, with the repositories of git's daemon."""

Refs = Mapping[bytes, bytes]


def repository_of(url: str, home: str) -> Path | None:
    """Return the git folder that a URL or path names, as git looks for it; None if there is none."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        path = unquote(parts.path)
    elif parts.scheme == "git":
        path = f"{home}/{DAEMON_ROOT}{unquote(parts.path)}"
    else:
        path = url
    for suffix in ("/.git", "", ".git/.git", ".git"):
        found = Path(path + suffix)
        if found.is_file():
            words = found.read_text(errors="replace").partition("gitdir: ")[2].strip()
            found = found.parent / words if words else found
        if (found / "HEAD").exists() and ((found / "objects").is_dir() or (found / "commondir").exists()):
            return found.resolve()
    return None


def peeled(local: GitRepository, key: bytes) -> bytes:
    """Return the id of the object that an annotated tag peels to; empty for any other object."""
    found = local.find(key.hex().encode() + b"^{}")
    return found.key if found is not None and found.key != key else b""


@dataclass(frozen=True)
class Source:
    """A repository as the source of a push."""

    local: GitRepository

    def plan(self, tips: Iterable[bytes], haves: Iterable[bytes]) -> Plan:
        """Return a plan of the objects to send."""
        return plan(self.local, tips, haves)


@dataclass(frozen=True)
class Bridge:
    """A git repository and its copy on the server."""

    folder: Path
    url: str
    root: Path
    """The served folder."""
    cache: Path
    """The folder in which a client of the server remembers the copy."""
    environment: Mapping[str, str]
    """The environment without git's variables on the repository in which a command runs."""

    def git_refs(self) -> Refs:
        """Return the refs of the repository, without those that git never pushes (`refs/stash`)."""
        listed = self._git("for-each-ref", "--format=%(objectname) %(refname)")
        rows = [line.split(b" ", 1) for line in listed.splitlines()]
        return {name: bytes.fromhex(key.decode()) for key, name in rows if name.count(b"/") > 1}

    def served_refs(self) -> Refs | None:
        """Return the refs on the server; None before there is a copy."""
        stored = self._stored()
        return {name: tips[0].id for name, tips in stored.snapshot().state.refs().items()} if stored.exists() else None

    def copy_in(self) -> Refs:
        """Make the copy on the server equal to the repository, and return its refs."""
        wanted, present = self.git_refs(), self.served_refs()
        with GitRepository(self.folder, self.environment) as local:
            head = local.head() or NO_BRANCH
            if wanted == present and self._stored().snapshot().state.settings.get("HEAD") == head:
                return wanted
            with self._client() as (client, place):
                remote = RemoteRepository(client, place.path, Knowledge(str(self.cache), place.key))
                if present is None:
                    kinds = [KindField(kind.name, kind.check, kind.base) for kind in local.kinds]
                    remote.ask((repository_create, CreateRequest(local.vcs, kinds, {"HEAD": head})))
                    present = {}
                updates = [RefUpdate(name, None) for name in present if name not in wanted]
                self._set_head(remote, NO_BRANCH if head not in wanted else head)
                updates += [
                    RefUpdate(name, key, Rule.FORCE, attributes=peeled(local, key))
                    for name, key in wanted.items()
                    if present.get(name) != key
                ]
                done = remote.push(PushRequest(updates, Source(local))).refs
                self._set_head(remote, head)
        failed = [f"{each.update.ref!r}: {each.error}" for each in done if each.error]
        if failed:
            raise VcsError(str(failed))
        return wanted

    def copy_out(self, before: Refs) -> None:
        """Copy the refs that a command changed on the server to the repository."""
        after = self.served_refs() or {}
        changed = {name: key for name, key in after.items() if before.get(name) != key}
        removed = [name for name in before if name not in after]
        if not changed and not removed:
            return
        with GitRepository(self.folder, self.environment) as local, self._client() as (client, place):
            remote = RemoteRepository(client, place.path, Knowledge(str(self.cache), place.key))
            fetch = Fetch(place.path, remote, Terminal(lambda _: None), Options())
            fetch.pull(local, Wants(tuple(changed)))
            fetch.bring(local, changed.values())
            symbolic = self._git("for-each-ref", "--format=%(if)%(symref)%(then)%(refname)%(end)").splitlines()
            lines = [b"delete " + name for name in removed]
            lines += [
                b"update %s %s" % (name, key.hex().encode()) for name, key in changed.items() if name not in symbolic
            ]
            self._git("update-ref", "-m", "push", "--stdin", stdin=b"\n".join(lines) + b"\n")
            fetch.close()

    def _set_head(self, remote: RemoteRepository, head: bytes) -> None:
        """Set HEAD on the server; its branch may be missing."""
        if remote.knowledge.settings.get("HEAD") != head:
            remote.ask((repository_configure, ConfigureRequest({"HEAD": head})))

    def _client(self) -> AbstractContextManager[tuple[Client, Place]]:
        return client_for(self.url, frozenset(), Tool("bridge"), self.environment)

    def _stored(self) -> PackRepository:
        return PackRepository(LocalTransport(self.root), urlsplit(self.url).path.strip("/"))

    def _git(self, *words: str, stdin: bytes = b"") -> bytes:
        command = ["git", "--git-dir", str(self.folder), *words]
        return subprocess.run(command, input=stdin, stdout=subprocess.PIPE, env=self.environment, check=True).stdout


def name_of(folder: Path) -> str:
    """Return the name of a repository on the server. A recreated repository gets a new name."""
    mark = folder / "hpss-bridge"
    with suppress(FileExistsError):
        mark.symlink_to(uuid4().hex)  # Made at once with what it says.
    return hashlib.sha256(os.fsencode(folder) + os.fsencode(mark.readlink())).hexdigest()[:16]


def outside(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without git's variables on the repository in which a command runs."""
    words = subprocess.run(["git", "rev-parse", "--local-env-vars"], stdout=subprocess.PIPE, text=True, check=True)
    local = {*words.stdout.split(), "GIT_PROTOCOL", "GIT_QUARANTINE_PATH"}
    return {name: value for name, value in environment.items() if name not in local}


def main() -> NoReturn:
    """Run as git runs a remote helper."""
    remote, address = sys.argv[1:]
    with open(os.environ["HPSS_BRIDGE_LOG"], "ab", buffering=0) as log:
        log.write(b"\n# bridged\n")
    folder = repository_of(address, os.environ["HOME"])
    if folder is None:
        sys.stderr.write(f"fatal: '{address}' does not appear to be a git repository\n")
        sys.stderr.write("fatal: Could not read from remote repository.\n\n")
        sys.stderr.write("Please make sure you have the correct access rights\nand the repository exists.\n")
        sys.exit(128)
    work = Path(os.environ["HPSS_BRIDGE_WORK"])
    environment = outside(os.environ)
    name = name_of(folder)
    url = f"{os.environ['HPSS_BRIDGE']}/{work.name}/{name}"
    bridge = Bridge(folder, url, Path(os.environ["HPSS_BRIDGE_ROOT"]), work / "bridge", environment)
    with open(work / f"{name}.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            before = bridge.copy_in()
        except (VcsError, CodedError, subprocess.CalledProcessError) as wrong:
            sys.exit(f"bridge: {folder} cannot be copied: {wrong}")
    child = os.fork()
    if not child:
        os._exit(serve(remote, url, {**os.environ, "XDG_CACHE_HOME": str(work / "cache")}, parent=os.getppid()))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    bridge.copy_out(before)
    sys.exit(status if status >= 0 else 128)
