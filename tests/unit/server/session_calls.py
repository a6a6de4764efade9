"""Calls for a session, and what became of them."""

from __future__ import annotations

from builders import MAIN

from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.declare import AnyVerb, Arguments
from smartserver.verbs.repository_insert_pack import InsertPackRequest, repository_insert_pack
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.messages import Failure
from smartserver.wire.messages import Reply as ReplyMessage

PING: tuple[AnyVerb, Arguments] = (server_ping, PingRequest())


PULL: tuple[AnyVerb, Arguments] = (repository_pull, PullRequest())


INSERT: tuple[AnyVerb, Arguments] = (repository_insert_pack, InsertPackRequest())


def code(answer: ReplyMessage | Failure | None) -> str:
    """The fault of a refusal; `ok` for a reply."""
    assert answer is not None
    return answer.fault.code if isinstance(answer, Failure) else "ok"


def set_main(tip: bytes) -> tuple[AnyVerb, Arguments]:
    return branch_set_last_revision, SetLastRevisionRequest(MAIN, tip)
