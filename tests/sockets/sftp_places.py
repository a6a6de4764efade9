"""Folders on a real SFTP server, for tests of what is sent."""

from __future__ import annotations

from pathlib import Path

from sshd import Sshd

from netem.proxy import Proxy
from transports.sftp import Line, SftpTransport
from transports.sftp_login import Account, log_in
from transports.sftp_session import PATIENCE


def place(server: Sshd, folder: Path, proxy: Proxy | None = None, *, patience: float = PATIENCE) -> SftpTransport:
    """A folder there, through a link if there is one; nothing is connected yet."""
    host, port = (server.host, server.port) if proxy is None else (proxy.host, proxy.port)
    account = Account(host, port=port, config=str(server.config))
    return SftpTransport(Line(lambda: log_in(account, patience)), str(folder), "sftp://there")
