"""The steps of a server before its first client: find the repositories below the root and clear what a crash left."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from typing import Protocol

from smartserver.server import jail
from smartserver.server.connections import Clock
from smartserver.server.executor import Executor
from smartserver.server.site import Site
from smartserver.server.tcp import TcpReactor
from transports.base import EntryKind, Transport
from transports.errors import CodedError

log = logging.getLogger("smartserver")

MAX_DEPTH = 8
"""Folders below the root that are searched for repositories to tidy; deeper ones are tidied when they are used."""


class Reactor(Clock, TcpReactor, Protocol):
    """The part of Twisted's reactor that is used; its own interfaces say nothing to a type checker."""

    def run(self, *, installSignalHandlers: bool) -> None:
        """Move bytes until `stop`."""

    def stop(self) -> None:
        """End `run`."""

    def callFromThread(self, call: Callable[[], None]) -> None:
        """Call this on the reactor's thread."""

    def addSystemEventTrigger(self, phase: str, event: str, call: Callable[[], object]) -> object:
        """Call this when the reactor stops; a Deferred it returns is waited for."""


def inside_of(root: Transport) -> Callable[[str], bool]:
    """A check that a path, links followed, stays below a folder."""
    real = root.real_path()
    below = real.rstrip(os.sep) + os.sep

    def inside(name: str) -> bool:
        found = root.real_path(name)
        return found == real or found.startswith(below)

    return inside


def tidy_all(site: Site, executor: Executor) -> None:
    """Clear `incoming` of every repository below the root, and delete packs that were dropped a day ago. Have receivers
    be told what a server that was killed has left."""
    for path in repositories(site.root, site.inside):
        if executor.stopping:
            return
        try:
            repository = site.find(path).repository
            site.changed(repository)
            repository.collect_garbage_files()
        except Exception as error:  # It runs in a thread whose errors nobody sees.
            log.warning("tidying %s: %s", path, error, exc_info=not isinstance(error, CodedError))


def repositories(
    root: Transport, inside: Callable[[str], bool] = lambda path: True, path: str = "", depth: int = 0
) -> Iterator[str]:
    """Paths of the repositories below a place, half-made ones too; nothing is looked for inside one, nor where a link
    leads out of the root (`inside` says so)."""
    try:
        names = root.list_directory(path)
    except CodedError:
        return
    if "packs" in names and ("incoming" in names or "format" in names):  # A bucket has no empty folder.
        yield path
        return
    if depth == MAX_DEPTH:
        return
    for name in names:
        below = f"{path}/{name}" if path else name
        try:
            if jail.clean(below) == below and root.stat(below).kind is EntryKind.DIRECTORY and inside(below):
                yield from repositories(root, inside, below, depth + 1)
        except CodedError:
            continue
