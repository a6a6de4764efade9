"""The ways in for stock git, as `smartserver serve` opens them: `--http`, and git's commands over ssh."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smartserver.gateway.git_command import GitCommand
    from smartserver.server.access import Admission, Anonymous
    from smartserver.server.connections import Connections
    from smartserver.server.rules import AccessFile
    from smartserver.server.site import Site
    from smartserver.server.startup import Reactor
    from smartserver.server.tcp import Encryption, ListeningPort
    from smartserver.server.tokens import TokenFile

TIDY_AFTER = 20.0
"""Seconds after an update of a cache that it is tidied: the client that waited for it has its clone by then."""


def git_folder(cache_dir: Path | None, environment: Mapping[str, str]) -> str:
    """The folder of the caches for stock git: in `--cache-dir`, else as systemd says, else as XDG does."""
    cache = environment.get("CACHE_DIRECTORY", "").partition(":")[0]
    home = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.abspath(Path(cache_dir or cache or os.path.join(home, "smartserver"), "git"))


def listen_for_git(
    opened: socket.socket,
    connections: Connections,
    reactor: Reactor,
    *,
    folder: str,
    cache_size: int | None,
    access: tuple[AccessFile, TokenFile] | None,
    anonymous: Anonymous,
    encryption: Encryption | None,
    is_first: bool,
) -> ListeningPort:
    """Accept clients of stock git on a socket. `cache_size`: as of `Gateway`. `is_first`: whether no other process
    serves the same yet."""
    from smartserver.gateway.gateway import Gateway
    from smartserver.gateway.http_channel import GatewayFactory
    from smartserver.server import access as rules
    from smartserver.server.executor import Lane
    from smartserver.server.tcp import accept

    executor = connections.executor

    def wait(call: Callable[[], None]) -> None:
        reactor.callLater(TIDY_AFTER, call)

    gateway = Gateway(connections.site, folder, executor, lambda call: executor.soon(lambda: wait(call)), cache_size)
    if is_first:
        executor.run(gateway.clear_quarantine, lambda _: None, Lane.LONG)

    def admit(private: bool) -> Admission:
        # A proxy on this machine hands on what strangers ask: nobody has more rights for coming from here.
        if access is None:
            return rules.anonymous(anonymous, local=False)
        return rules.TokenAdmission(*access, private)

    return accept(reactor, opened, GatewayFactory(gateway, connections, admit, reactor, encryption))


def serve_git(
    site: Site,
    asked: GitCommand,
    admission: Admission,
    peer: str,
    folder: str,
    cache_size: int | None,
    environment: Mapping[str, str],
) -> int:
    """Answer a command of git's on standard input and output; the status to end with. `cache_size`: as of `Gateway`."""
    from smartserver.gateway.gateway import Gateway, Visitor
    from smartserver.gateway.ssh import LaterExecutor, serve

    executor = LaterExecutor()
    gateway = Gateway(site, folder, executor, cache_size=cache_size)
    status = serve(gateway, Visitor(admission, {}, peer, "ssh"), asked, environment.get("GIT_PROTOCOL", ""))
    # The client is not kept waiting for what comes after its answer.
    with open(os.devnull, "r+b") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    executor.finish()
    gateway.clear_quarantine()  # There may be no server with --http beside, which does that when it starts.
    return status
