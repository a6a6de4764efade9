"""`Repository.missing`: what each side lacks of the other's history, as a graph."""

from __future__ import annotations

from typing import Annotated

import msgspec

from smartserver.errors import MissingRevision, NoSuchBranch, NoSuchRepository
from smartserver.verbs.declare import Arguments, Context, Effect, Result, verb
from smartserver.verbs.fields import MAX_IDS, Id, RefName
from smartserver.verbs.repository_get_parent_map import ParentField, parent_fields
from smartserver.verbs.repository_pull import MAX_HAVES

MAX_LISTED = 65_536
"""Revisions in one answer, and ids of the client's own in one call."""


class MissingRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`refs` and `ids`: whose history is compared. `haves`: revisions the client has complete. `mine`: revisions of the
    client's, of which it asks whether they are in that history. `most`: revisions it wants to be told of.
    """

    refs: Annotated[list[RefName], msgspec.Meta(max_length=MAX_HAVES)] = []
    ids: Annotated[list[Id], msgspec.Meta(max_length=MAX_IDS)] = []
    haves: Annotated[list[Id], msgspec.Meta(max_length=MAX_HAVES)] = []
    mine: Annotated[list[Id], msgspec.Meta(max_length=MAX_LISTED)] = []
    most: Annotated[int, msgspec.Meta(ge=0, le=MAX_LISTED)] = MAX_LISTED


class RevisionField(Result, frozen=True, array_like=True):
    """A revision and its parents."""

    id: bytes
    parents: list[ParentField]


class MissingResult(Result, frozen=True, array_like=True):
    """`revisions`: what the client lacks, parents first, the newest where there are more than it wants. `count`: how
    many there are. `common`: a bit for each have, lowest first, that is here. `lacking`: a bit for each of `mine` that
    is not in the history.
    """

    revisions: list[RevisionField]
    count: int
    common: bytes
    lacking: bytes


@verb("Repository.missing", effect=Effect.READ, errors=(MissingRevision, NoSuchBranch, NoSuchRepository))
def repository_missing(context: Context, request: MissingRequest) -> MissingResult:
    """Compare histories, without their records: which revisions the client lacks, and which of its own are not here."""
    transaction = context.transaction
    wants = list(request.ids)
    for ref in request.refs:
        value = transaction.ref(ref)
        if value is None:
            raise NoSuchBranch(ref)
        wants += [tip.id for tip in value]
    count, newest = transaction.missing(wants, request.haves, request.most)
    revisions = [RevisionField(each, parent_fields(context, each) or []) for each in newest]
    reached = transaction.reached(request.mine, wants)
    return MissingResult(
        revisions,
        count,
        _bits([transaction.is_stored(have) for have in request.haves]),
        _bits([not each for each in reached]),
    )


def _bits(each: list[bool]) -> bytes:
    """A bit for each, the lowest first."""
    packed = bytearray((len(each) + 7) // 8)
    for index, bit in enumerate(each):
        packed[index >> 3] |= bit << (index & 7)
    return bytes(packed)
