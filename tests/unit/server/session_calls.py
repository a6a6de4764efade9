"""Calls for a session, and what became of them."""

from __future__ import annotations

from builders import MAIN
from dialogs import CREATE, PATH, Served

from smartserver.errors import error_from_wire
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.declare import AnyVerb, Arguments
from smartserver.verbs.repository_create import repository_create
from smartserver.verbs.repository_insert_pack import InsertPackRequest, repository_insert_pack
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.messages import Failure, KnownVersion, Reply, RequestFlag, named
from transports.errors import CodedError

PING: tuple[AnyVerb, Arguments] = (server_ping, PingRequest())


PULL: tuple[AnyVerb, Arguments] = (repository_pull, PullRequest())


INSERT: tuple[AnyVerb, Arguments] = (repository_insert_pack, InsertPackRequest())


CREATION: tuple[AnyVerb, Arguments] = (repository_create, CREATE)


BODY = RequestFlag.BODY


def code(answer: Reply | Failure | None) -> str:
    """The fault of a refusal; `ok` for a reply."""
    assert answer is not None
    return answer.fault.code if isinstance(answer, Failure) else "ok"


def set_ref(tip: bytes, ref: bytes = MAIN) -> tuple[AnyVerb, Arguments]:
    return branch_set_last_revision, SetLastRevisionRequest(ref, tip)


def done(answer: Reply | Failure | None) -> Reply:
    assert isinstance(answer, Reply), answer
    return answer


def refused(answer: Reply | Failure | None) -> CodedError:
    assert isinstance(answer, Failure), answer
    return error_from_wire(answer.fault.code, named(answer.fault))


def known(served: Served, path: str = PATH) -> KnownVersion:
    state = served.repository(path).snapshot().state
    return KnownVersion(state.incarnation, state.version, state.mark)
