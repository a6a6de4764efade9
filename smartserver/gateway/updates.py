"""Updates of caches that requests wait for: one at a time of a repository, whoever waits for it. No thread waits for
another's; it runs on the thread that moves the bytes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from smartserver.gateway.cache import StoreState
from smartserver.gateway.gateway import Gateway
from smartserver.server.executor import Lane
from smartserver.server.fair import Tenant
from smartserver.vcs.base import VcsError
from transports.errors import CodedError

log = logging.getLogger("smartserver")

EXPECTED: Final = (CodedError, VcsError, OSError)
"""What may be wrong with a store, with git, or with the disk."""

Done = Callable[[Exception | None], None]
"""Is told why an update failed."""


class Updates:
    """The updates of the caches of a gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._waiting: dict[str, list[tuple[StoreState, Tenant, Done]]] = {}
        """Of each repository whose cache is being updated: those for whom that began too early."""

    def bring(self, path: str, state: StoreState, client: Tenant, done: Done) -> None:
        """Bring a cache to that state or a later one, then call `done`."""
        waiting = self._waiting.get(path)
        if waiting is not None:
            waiting.append((state, client, done))
            return
        self._waiting[path] = []
        self._run(path, [(state, client, done)])

    def _run(self, path: str, those: list[tuple[StoreState, Tenant, Done]]) -> None:
        state, client, _ = those[-1]  # It came last, and its state is the newest.

        def work() -> Exception | None:
            try:
                self._gateway.bring(path, state).close()
            except EXPECTED as wrong:
                log.warning("the cache of %r: %s", path, wrong)
                return wrong
            except Exception as wrong:  # The boundary of a request.
                log.exception("internal error in the cache of %r", path)
                return wrong
            return None

        def ended(wrong: Exception | None) -> None:
            next_ones = self._waiting.pop(path)
            if next_ones:
                self._waiting[path] = []
                self._run(path, next_ones)
            for _, _, done in those:
                done(wrong)

        self._gateway.executor.run(work, ended, Lane.CONTENT, client)
