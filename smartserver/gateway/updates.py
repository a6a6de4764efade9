"""Updates of caches that requests wait for. A repository has one update at a time, which serves all requests that
waited when it began. No thread waits for an update in another thread: the methods run on the I/O thread, and the
updates in the executor."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from smartserver.gateway.gateway import Gateway, OtherSystem
from smartserver.server.executor import Lane
from smartserver.server.fair import Tenant
from smartserver.vcs.base import VcsError
from transports.errors import CodedError

log = logging.getLogger("smartserver")

EXPECTED: Final = (CodedError, OtherSystem, VcsError, OSError)
"""The errors of the store, of git, and of the disk."""

Done = Callable[[Exception | None], None]
"""A function that is called after an update, with its error, or None if it succeeded."""


class Updates:
    """The updates of the caches of a gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._waiting: dict[str, list[tuple[Tenant, Done]]] = {}
        """The requests that wait for the next update, by the path of each repository whose cache is being updated."""

    def bring(self, path: str, client: Tenant, done: Done) -> None:
        """Update a cache to the newest state, then call `done`."""
        waiting = self._waiting.get(path)
        if waiting is not None:
            waiting.append((client, done))
            return
        self._waiting[path] = []
        self._run(path, [(client, done)])

    def forget(self, path: str, done: Done) -> None:
        """Drop a waiting request whose client has disconnected. Otherwise such requests would accumulate."""
        waiting = self._waiting.get(path, [])
        waiting[:] = [each for each in waiting if each[1] != done]

    def _run(self, path: str, those: list[tuple[Tenant, Done]]) -> None:
        client, _ = those[-1]

        def work() -> Exception | None:
            try:
                self._gateway.bring(path).close()
            except EXPECTED as error:
                log.warning("the cache of %r: %s", path, error)
                return error
            except Exception as error:  # Nothing may end the server.
                log.exception("internal error in the cache of %r", path)
                return error
            return None

        def ended(error: Exception | None) -> None:
            next_ones = self._waiting.pop(path)
            if next_ones:
                self._waiting[path] = []
                self._run(path, next_ones)
            for _, done in those:
                done(error)

        self._gateway.executor.run(work, ended, Lane.CONTENT, client)
