"""The three ways to a repository, each with a server of its own on loopback and a link in front of it; and the rows:
each operation, the round trips it may take on each way, and those of others before us.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from sshd import Sshd

from netem.proxy import Proxy
from smartserver.cli.errors import CommandError
from smartserver.cli.servers import HOST, Workspace, serving
from smartserver.client.vfs_transport import from_url
from transports.base import Transport

RPC, VFS, SFTP = "rpc", "vfs", "sftp"
"""The ways: one request; the file-level verbs of a server of ours; an OpenSSH server's SFTP."""

LOCK, NEW, PUSH, BRANCH, PULL, CLONE = (
    "lock and unlock", "new repository", "push one revision", "push a new branch", "pull one revision", "clone",
)  # fmt: skip
REPACK = "repack of 20 packs"

PACKS = 20

SIZES = {"1 B": 1, "1 KB": 1000, "64 KB": 64_000, "1 MB": 1_000_000}


CONNECTING = {RPC: 1}
"""Round trips of an operation that is not `opened` by which its connection is made, where they would be taken for the
operation's own: of the others the login, or the operation, takes many times as much."""


@dataclass(frozen=True)
class Row:
    name: str
    bars: Mapping[str, int] = field(default_factory=dict)
    """Round trips it may take, by way."""
    breezy: Mapping[str, int] = field(default_factory=dict)
    """Those of Breezy 3.3, which 2008's plan was for (measured by another instrument, 300 revisions)."""
    opened: bool = False
    """Whether what comes first, connection and login, is not counted."""
    saved: str = ""
    """What became of the round trips, for whoever asks why there is a protocol."""


ROWS: tuple[Row, ...] = (
    Row(
        LOCK, {RPC: 1, VFS: 3, SFTP: 7}, {VFS: 9, SFTP: 22}, opened=True,
        saved="Breezy makes a folder, writes who it is, renames it, reads it back to see that it is its own, and does "
        "as much to let go. Over files we ask for all of that at once, and read the root with it. By RPC no lock is "
        "held for a client at all: the server swaps one small file once everything it needs is there.",
    ),
    Row(
        NEW, {RPC: 2, VFS: 47, SFTP: 117}, {VFS: 142, SFTP: 353},
        saved="Breezy makes it empty, then locks it, then fills it, one file after the other. Over files ours is made "
        "under another name and renamed, folders and files in groups. By RPC it is a call of the push that fills it.",
    ),
    Row(
        PUSH, {RPC: 2, VFS: 21, SFTP: 52}, {VFS: 64, SFTP: 157},
        saved="Over files a client reads the format, the root and every index before it knows what is missing, reads "
        "the bases of what it compresses, writes pack and index, renames them, locks, reads the root again, swaps it "
        "and unlocks. By RPC it sends what it thinks is missing, and the server does the rest beside its disk.",
    ),
    Row(
        BRANCH, {RPC: 2, VFS: 40, SFTP: 93}, {VFS: 122, SFTP: 280},
        saved="To Breezy a branch is a folder with five files. To us it is an entry of the root, written with a push.",
    ),
    Row(
        PULL, {RPC: 2, VFS: 11, SFTP: 31}, {VFS: 35, SFTP: 94},
        saved="Over files the indexes come first, then the packs are read in as many places as they must be. By RPC "
        "the client says what it has, and the answer is what it lacks.",
    ),
    Row(
        CLONE, {RPC: 2, VFS: 12, SFTP: 33}, {VFS: 36, SFTP: 99},
        saved="As a pull; a reader takes no lock on any way.",
    ),
    *[
        Row(f"{verb} {name}", bars, opened=True)
        for verb, bars in (("put", {VFS: 1, SFTP: 2}), ("append", {VFS: 1}))
        for name in SIZES
    ],
    Row(
        REPACK, {RPC: 2},
        saved="2008 left this one unmeasured. Over files every pack comes here, small ones together, and goes back "
        "joined; then leftovers are looked for. By RPC nothing of it passes the link, and a server does it unasked, "
        "after an answer.",
    ),
)  # fmt: skip


class Way(ABC):
    name: ClassVar[str]
    label: ClassVar[str]
    joins_none: ClassVar[bool] = True
    """Whether packs are joined only when that is asked for; the repack of many is measured only after such a way."""

    def __init__(self, work: Workspace) -> None:
        self.served = work.folder / f"served-{self.name}"
        self.served.mkdir()
        self.proxy = work.enter(Proxy(0.0, (HOST, self.serve(work))))

    @abstractmethod
    def serve(self, work: Workspace) -> int:
        """Have a server started, which `work` ends: its port."""

    @abstractmethod
    def url(self, name: str) -> str:
        """The URL of a repository, as git takes it, across the link."""

    @abstractmethod
    def store(self) -> Transport | None:
        """What is served as files across the link, on a connection that is made when it is used; None: it has none."""


class ByRpc(Way):
    name = RPC
    label = "RPC"
    joins_none = False

    def serve(self, work: Workspace) -> int:
        return serve_ours(work, self.served)

    def url(self, name: str) -> str:
        return f"hpss://{HOST}:{self.proxy.port}/{name}"

    def store(self) -> None:
        """It reads and writes none for a client."""


class ByVerbs(Way):
    """The same, asked for files."""

    name = VFS
    label = "VFS verbs"

    def serve(self, work: Workspace) -> int:
        return serve_ours(work, self.served, "--allow-vfs")

    def url(self, name: str) -> str:
        return f"hpss+vfs://{HOST}:{self.proxy.port}/{name}"

    def store(self) -> Transport:
        return from_url(f"vfs://{HOST}:{self.proxy.port}/")


class BySftp(Way):
    """An OpenSSH server, which knows nothing of us."""

    name = SFTP
    label = "SFTP"

    def serve(self, work: Workspace) -> int:
        """`sshd`, which lets in a key of its own, and a user who has that."""
        folder, home = work.folder / "sshd", work.folder / "home" / ".ssh"
        for each in (folder, home):
            each.mkdir(parents=True)
        try:
            self._server = work.enter(Sshd(folder))
        except FileNotFoundError as missing:
            raise CommandError(str(missing)) from None
        shutil.copy(self._server.config, home / "config")
        return self._server.port

    def url(self, name: str) -> str:
        return f"hpss+sftp://{HOST}:{self.proxy.port}{self.served}/{name}"

    def store(self) -> Transport:
        from transports.sftp import Line, SftpTransport
        from transports.sftp_login import Account, log_in

        account = Account(HOST, port=self.proxy.port, config=str(self._server.config))
        return SftpTransport(Line(lambda: log_in(account)), str(self.served), "sftp://there")


WAYS: tuple[type[Way], ...] = (BySftp, ByVerbs, ByRpc)
"""In the order they are shown."""


def serve_ours(work: Workspace, served: Path, *options: str) -> int:
    """Our server, of repositories that all ways may write to: its port."""
    return work.start("hpss", served, lambda host, port: serving(served, host, port, "--folder-locks", *options)).port
