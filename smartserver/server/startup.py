"""The steps of a server at its start: find the repositories below the root and delete leftovers of crashes."""

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
from smartserver.store.format import FORMAT, INCOMING, NAMES, PACKS
from transports.base import EntryKind, Transport
from transports.errors import CodedError

log = logging.getLogger("smartserver")

MAX_DEPTH = 8
"""The most levels of folders below the root that are searched for repositories to tidy. Repositories further below are
tidied when they are used."""


class Reactor(Clock, TcpReactor, Protocol):
    """The part of Twisted's reactor that is used here. Its own interfaces are unknown to a type checker."""

    def run(self, *, installSignalHandlers: bool) -> None:
        """Run the event loop until `stop`."""

    def stop(self) -> None:
        """End `run`."""

    def callFromThread(self, call: Callable[[], None]) -> None:
        """Call `call` on the reactor's thread."""

    def addSystemEventTrigger(self, phase: str, event: str, call: Callable[[], object]) -> object:
        """Call `call` when the reactor stops, and wait for a Deferred that it returns."""


def inside_of(root: Transport) -> Callable[[str], bool]:
    """Return a function that returns True if a path, with links followed, is the root or below it."""
    real = root.real_path()
    below = real.rstrip(os.sep) + os.sep

    def inside(name: str) -> bool:
        found = root.real_path(name)
        return found == real or found.startswith(below)

    return inside


def tidy_all(site: Site, executor: Executor) -> None:
    """Delete leftovers in `incoming` of every repository below the root, and packs that were dropped a day ago. Also
    schedule the notifications that a killed server has not sent."""
    for path in repositories(site.root, site.inside):
        if executor.stopping:
            return
        try:
            repository = site.find(path).repository
            site.changed(repository)
            repository.collect_garbage_files()
        except Exception as error:  # Nobody sees errors of this thread.
            log.warning("tidying %s: %s", path, error, exc_info=not isinstance(error, CodedError))


def repositories(
    root: Transport, inside: Callable[[str], bool] = lambda path: True, path: str = "", depth: int = 0
) -> Iterator[str]:
    """Yield the paths of the repositories below a place, including incomplete and deleted ones. Links out of the root
    (for which `inside` is false) are not followed."""
    try:
        names = root.list_directory(path)
    except CodedError:
        return
    if PACKS in names and (INCOMING in names or FORMAT in names):  # A bucket has no empty folder.
        yield path
        names = [name for name in names if name not in NAMES]
    if depth == MAX_DEPTH:
        return
    for name in names:
        below = f"{path}/{name}" if path else name
        try:
            if jail.clean(below) == below and root.stat(below).kind is EntryKind.DIRECTORY and inside(below):
                yield from repositories(root, inside, below, depth + 1)
        except CodedError:
            continue
