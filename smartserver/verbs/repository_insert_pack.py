"""`Repository.insert_pack`: bring revisions, without a lock."""

from __future__ import annotations

from smartserver.errors import (
    ConflictingRecord,
    CorruptRecord,
    KnownRevisions,
    LimitExceeded,
    MissingBase,
    MissingParents,
    MissingReference,
    NoSuchRepository,
    WrongParents,
)
from smartserver.verbs.declare import Arguments, Body, Context, Result, verb

KNOWN_AT_LEAST = 16
KNOWN_SHARE = 8
"""A push is cut short when it announces at least 16 revisions that are held, or when an eighth of it is: a revision is
about 1.3 KB on the wire, so resending fewer than that costs less than the round trip it would save."""


class InsertPackRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Nothing: the body says it all."""


class InsertPackResult(Result, frozen=True, array_like=True):
    """The number of revisions that were new and are stored: those that only refused refs reach are not."""

    new: int


@verb(
    "Repository.insert_pack",
    body=Body.UP,
    errors=(
        ConflictingRecord,
        CorruptRecord,
        KnownRevisions,
        LimitExceeded,
        MissingBase,
        MissingParents,
        MissingReference,
        NoSuchRepository,
        WrongParents,
    ),
)
def repository_insert_pack(context: Context, request: InsertPackRequest) -> InsertPackResult:
    """Bring a stream of segments: checked in quarantine, live with the request's record.

    Where the graph came first and much of it is held already, the answer is `known`, before the records are sent.
    """
    transaction = context.transaction
    if not transaction.exists:
        raise NoSuchRepository(context.path)
    announced, new = len(transaction.announced), transaction.new_revisions()
    held = announced - new
    if context.early and (held >= KNOWN_AT_LEAST or held * KNOWN_SHARE >= announced > 0):
        raise KnownRevisions(transaction.known_heads())
    transaction.check_parents()
    return InsertPackResult(new - len(transaction.unreached_new()))
