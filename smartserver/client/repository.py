"""One repository on a server: requests to it (`exchange`), and pushes."""

from __future__ import annotations

from smartserver.client.exchange import RepositoryExchange
from smartserver.client.push import Push, PushRequest
from smartserver.client.updates import PushOutcome


class RemoteRepository(RepositoryExchange):
    """One repository on a server."""

    def push(self, request: PushRequest) -> PushOutcome:
        """Push revisions, move refs and change maps in one request. If its plan was stale, send another."""
        return Push(self, request).run()
