"""A `VfsTransport` to a server that says what a test wants, and what that server was asked."""

from __future__ import annotations

from scripted import Answering, ScriptedMedium, Server, done

from smartserver.client.vfs_link import VfsLink
from smartserver.client.vfs_transport import VfsTransport
from smartserver.verbs.declare import Result
from smartserver.wire.events import Body, End, Event, Reply, Request


def transport(server: Server) -> VfsTransport:
    return VfsTransport(VfsLink(server.client(), "base", "vfs://test/base"))


def answers(*results: Result, body: bytes | None = None) -> Answering:
    """Say this to a whole request."""

    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, End) or (isinstance(event, Request) and not event.body):
            medium.say(Reply(event.id, done(*results), body=body is not None))
            if body is not None:
                medium.say(Body(event.id, body), End(event.id, 0, len(body)))

    return answering
