"""Twisted Conch's SFTP server on loopback, as a program: it lets in one key, and prints its port.

python conch_server.py HOST_KEY AUTHORIZED_KEY
"""

# mypy: ignore-errors
# Conch has types in places only, and its interfaces are of zope.

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from twisted.conch import avatar, unix
from twisted.conch.checkers import InMemorySSHKeyDB, SSHPublicKeyChecker
from twisted.conch.interfaces import ISFTPServer
from twisted.conch.ssh import factory, filetransfer, keys, session
from twisted.cred.portal import Portal
from twisted.internet import reactor
from twisted.python.components import registerAdapter


class Account(avatar.ConchUser):
    """Whoever runs this program; `unix.UnixConchUser` wants to become another user."""

    def __init__(self) -> None:
        super().__init__()
        self.channelLookup[b"session"] = session.SSHSession
        self.subsystemLookup[b"sftp"] = filetransfer.FileTransferServer

    def getHomeDir(self) -> SimpleNamespace:
        return SimpleNamespace(path=os.getcwd())

    def _runAsUser(self, calls: Callable[..., Any] | Iterable[tuple[Any, ...]], *arguments: Any) -> Any:
        result = None
        for call, *rest in [(calls, arguments)] if callable(calls) else calls:
            result = call(*(rest[0] if rest else ()))
        return result


class Files(unix.SFTPServerForUnixConchUser):
    """Conch's own takes names in ASCII alone."""

    def _absPath(self, path: bytes) -> str:
        return os.path.join(self.avatar.getHomeDir().path, os.fsdecode(path))


class Realm:
    def requestAvatar(self, name: object, mind: object, *interfaces: Any) -> tuple[Any, Account, Callable[[], None]]:
        return interfaces[0], Account(), lambda: None


class Server(factory.SSHFactory):
    def __init__(self, host_key: str, authorized: str) -> None:
        key = keys.Key.fromFile(host_key)
        self.publicKeys = {key.sshType(): key.public()}
        self.privateKeys = {key.sshType(): key}
        allowed = keys.Key.fromFile(authorized)
        names = InMemorySSHKeyDB({os.environ["LOGNAME"].encode(): [allowed]})
        self.portal = Portal(Realm(), [SSHPublicKeyChecker(names)])


if __name__ == "__main__":
    registerAdapter(Files, Account, ISFTPServer)
    port = reactor.listenTCP(0, Server(*sys.argv[1:]), interface="127.0.0.1")
    print(port.getHost().port, flush=True)
    reactor.run()
