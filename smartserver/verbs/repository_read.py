"""`Repository.read`: get refs, and the parts of the history that a selector names."""

from __future__ import annotations

from typing import Annotated

import msgspec

from smartserver.errors import LimitExceeded, MissingRevision, NoSuchPart, NoSuchRepository, Unsupported
from smartserver.store.model import PullPlan
from smartserver.verbs.declare import Arguments, Body, Context, Effect, Result, verb
from smartserver.verbs.repository_pull import Haves, Refs, Wants, tips

MAX_SELECTOR = 4 << 20
"""The most bytes of a selector."""


class ReadRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`selector`: the parts to send, in the encoding of `records.browse` or of the repository's system. The other
    fields are as in `Repository.pull`."""

    selector: Annotated[bytes, msgspec.Meta(max_length=MAX_SELECTOR)]
    haves: Haves = []
    refs: Refs | None = None
    ids: Wants = []


class ReadResult(Result, frozen=True, array_like=True):
    """`said`: facts about the parts in the encoding of the repository's system. `segments`: the number of whole
    revisions in the body; 0 if it is a graph or a content body.
    """

    said: bytes = b""
    segments: int = 0


@verb(
    "Repository.read",
    effect=Effect.READ,
    body=Body.DOWN,
    errors=(LimitExceeded, MissingRevision, NoSuchPart, NoSuchRepository, Unsupported),
)
def repository_read(context: Context, request: ReadRequest) -> ReadResult:
    """Answer with the changes of the refs, then send trees, logs, a graph, or whole revisions.

    The store interprets selectors of trees and logs; the repository's system interprets any other. A system without
    selectors refuses the call. Revisions come parents first.
    """
    transaction = context.transaction
    wants = list(dict.fromkeys([*tips(transaction, request.refs), *request.ids]))
    ref = request.refs[0] if request.refs else b""
    plan, said = transaction.plan_read(request.selector, wants, request.haves, ref, context.inner)
    context.stream(plan)
    return ReadResult(said, plan.segments if isinstance(plan, PullPlan) else 0)
