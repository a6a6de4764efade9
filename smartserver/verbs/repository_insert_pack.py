"""`Repository.insert_pack`: store revisions, without a lock."""

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
"""A push is refused early if the server has at least 16 of the announced revisions, or an eighth of them. A revision is
about 1.3 KB on the wire, so sending fewer again costs less than the round trip of a refusal."""


class InsertPackRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """No arguments: the segments are in the body."""


class InsertPackResult(Result, frozen=True, array_like=True):
    """The number of new revisions that are stored. Revisions that only refused refs reach are not stored."""

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
    """Store a stream of segments. The segments are checked in quarantine, and become visible with the record of the
    request.

    If the graph was sent first and the server has many of its revisions, the answer is `known`, before the records are
    sent.
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
