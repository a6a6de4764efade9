"""`Repository.read`: refs, and parts of what the client lacks, which a selector names."""

from __future__ import annotations

from typing import Annotated

import msgspec

from smartserver.errors import LimitExceeded, MissingRevision, NoSuchPart, NoSuchRepository, Unsupported
from smartserver.store.model import PullPlan
from smartserver.verbs.declare import Arguments, Body, Context, Effect, Result, verb
from smartserver.verbs.repository_pull import Haves, Refs, Wants, tips

MAX_SELECTOR = 4 << 20
"""Bytes of a selector."""


class ReadRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`selector`: which parts, as `records.browse` encodes it for every system, or in the encoding of the repository's
    own. The rest is as in `Repository.pull`."""

    selector: Annotated[bytes, msgspec.Meta(max_length=MAX_SELECTOR)]
    haves: Haves = []
    refs: Refs | None = None
    ids: Wants = []


class ReadResult(Result, frozen=True, array_like=True):
    """`said`: what the repository's system says of the parts, in its encoding. `segments`: how many whole revisions
    the body has; 0 where it is a graph or a content body.
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
    """Answer what changed of the refs, then send parts of the history: trees, logs, a graph, or whole revisions.

    The store answers selectors of trees and logs; the package of the repository's system reads any other. A system
    without either refuses the call. Revisions come parents first.
    """
    transaction = context.transaction
    wants = list(dict.fromkeys([*tips(transaction, request.refs), *request.ids]))
    ref = request.refs[0] if request.refs else b""
    plan, said = transaction.plan_read(request.selector, wants, request.haves, ref, context.inner)
    context.stream(plan)
    return ReadResult(said, plan.segments if isinstance(plan, PullPlan) else 0)
