"""One repository on a server: what is asked of it (`exchange`), and pushes to it."""

from __future__ import annotations

from smartserver.client.exchange import RepositoryExchange
from smartserver.client.push import Push, PushRequest
from smartserver.client.updates import PushOutcome


class RemoteRepository(RepositoryExchange):
    """One repository on a server."""

    def push(self, request: PushRequest) -> PushOutcome:
        """Bring what refs need, move them and change maps, in one request."""
        return Push(self, request).run()
