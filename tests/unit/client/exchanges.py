"""Requests to send, and servers that do not answer as they should."""

from __future__ import annotations

from scripted import Answering, ScriptedMedium, done

from smartserver.client.request import Outgoing
from smartserver.verbs.branch_delete import BranchDeleteRequest, BranchDeleteResult, branch_delete
from smartserver.verbs.repository_insert_pack import InsertPackRequest, InsertPackResult, repository_insert_pack
from smartserver.verbs.server_ping import PingRequest, PingResult, server_ping
from smartserver.wire.events import (
    Event,
    Request,
)
from smartserver.wire.messages import RequestFlag

MAIN = b"refs/heads/main"


PONG = done(PingResult())


READ = Outgoing("project", [(server_ping, PingRequest())])


DELETE = Outgoing("project", [(branch_delete, BranchDeleteRequest(MAIN))])


def broken(medium: ScriptedMedium, event: Event) -> None:
    """A server that dies when the request is there."""
    if isinstance(event, Request):
        medium.break_off()


def banner(*parts: bytes) -> Answering:
    """A server that speaks something else, and closes."""

    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            for part in parts:
                medium.raw(part)
            medium.end()

    return answering


def silent(medium: ScriptedMedium, event: Event) -> None:
    """A server that never says anything."""


def upload(pieces: int, size: int = 40_000) -> Outgoing:
    """A push of so many pieces."""
    return Outgoing(
        "project",
        [(repository_insert_pack, InsertPackRequest()), (branch_delete, BranchDeleteRequest(MAIN))],
        RequestFlag.BODY,
        body=lambda: [(b"x" * size, 1)] * pieces,
    )


UPLOADED = done(InsertPackResult(1), BranchDeleteResult([]))
