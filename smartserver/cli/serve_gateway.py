"""The access for stock git in `smartserver serve`: `--http`, and git's commands over ssh."""

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
"""Seconds from the update of a cache to its cleanup. The client that waited for the update has its clone by then."""


def git_folder(cache_dir: Path | None, environment: Mapping[str, str]) -> str:
    """Return the folder of the caches for stock git: in `--cache-dir`, else in the cache folder of systemd or XDG."""
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
    """Accept clients of stock git on a socket. `cache_size`: as in `Gateway`. `is_first`: true in the first of the
    processes that serve the same caches."""
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
        # A proxy on this machine passes on requests of strangers, so local clients get no more rights than others.
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
    """Answer a command of git on standard input and output. Return the exit status. `cache_size`: as in `Gateway`."""
    from smartserver.gateway.gateway import Gateway, Visitor
    from smartserver.gateway.ssh import LaterExecutor, serve

    executor = LaterExecutor()
    gateway = Gateway(site, folder, executor, cache_size=cache_size)
    status = serve(gateway, Visitor(admission, {}, peer, "ssh"), asked, environment.get("GIT_PROTOCOL", ""))
    # Close the streams, so that the client does not wait for the cleanup after its answer.
    with open(os.devnull, "r+b") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    executor.finish()
    gateway.clear_quarantine()  # A server with --http does that when it starts, but there may be none.
    return status
