"""The three ways to a repository, each with a server of its own on loopback and a link in front of it."""

from __future__ import annotations

import shutil
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from sshd import Sshd

from bench.baseline.rows import RPC, SFTP, VFS
from netem.proxy import Proxy
from smartserver.cli.errors import CommandError
from smartserver.cli.servers import HOST, Workspace, free_port
from smartserver.client.vfs_transport import from_url
from transports.base import Transport


class Way(ABC):
    """One of them."""

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
        """Have a server started, which `work` ends: its port.

        Raises:
            CommandError: it does not start.
        """

    @abstractmethod
    def url(self, name: str) -> str:
        """The URL of a repository, as git takes it, across the link."""

    @abstractmethod
    def store(self) -> Transport | None:
        """What is served as files across the link, on a connection that is made when it is used; None: it has none."""


class ByRpc(Way):
    """A server of ours."""

    name = RPC
    label = "RPC"
    joins_none = False

    def serve(self, work: Workspace) -> int:
        """`smartserver serve`."""
        return serve_ours(work, self.served)

    def url(self, name: str) -> str:
        """Of hpss://."""
        return f"hpss://{HOST}:{self.proxy.port}/{name}"

    def store(self) -> None:
        """It reads and writes none for a client."""


class ByVerbs(Way):
    """The same, asked for files."""

    name = VFS
    label = "VFS verbs"

    def serve(self, work: Workspace) -> int:
        """`smartserver serve --allow-vfs`."""
        return serve_ours(work, self.served, "--allow-vfs")

    def url(self, name: str) -> str:
        """Of hpss+vfs://."""
        return f"hpss+vfs://{HOST}:{self.proxy.port}/{name}"

    def store(self) -> Transport:
        """Over the file-level verbs."""
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
        """Of hpss+sftp://."""
        return f"hpss+sftp://{HOST}:{self.proxy.port}{self.served}/{name}"

    def store(self) -> Transport:
        """As its user has it."""
        from transports.sftp import Line, SftpTransport
        from transports.sftp_login import Account, log_in

        account = Account(HOST, port=self.proxy.port, config=str(self._server.config))
        return SftpTransport(Line(lambda: log_in(account)), str(self.served), "sftp://there")


WAYS: tuple[type[Way], ...] = (BySftp, ByVerbs, ByRpc)
"""In the order they are shown."""


def serve_ours(work: Workspace, served: Path, *options: str) -> int:
    """Our server, of repositories that all ways may write to: its port.

    Raises:
        CommandError: it does not start.
    """
    port = free_port()
    command = (sys.executable, "-m", "smartserver.cli.main", "serve", str(served), "--listen", f"{HOST}:{port}")
    work.serve([*command, "--anonymous", "write", "--folder-locks", *options], port)
    return port
