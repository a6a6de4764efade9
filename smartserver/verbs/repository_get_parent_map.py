"""`Repository.get_parent_map`: the parents of revisions, many in one call."""

from __future__ import annotations

from typing import Annotated

import msgspec

from smartserver.errors import NoSuchRepository
from smartserver.records.model import RevisionId
from smartserver.verbs.declare import Arguments, Context, Effect, Result, verb
from smartserver.verbs.fields import MAX_IDS, Id

PARENT_BYTES = 4
"""What a parent takes on the wire besides its id, at least."""


class ParentField(Result, frozen=True, array_like=True):
    """A parent; `absent`: whoever brought the revision did not have it."""

    id: bytes
    absent: bool = False


class GetParentMapRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Whose parents."""

    ids: Annotated[list[Id], msgspec.Meta(max_length=MAX_IDS)]


class GetParentMapResult(Result, frozen=True, array_like=True):
    """The parents of each revision that is stored, in their order; one that is not is left out."""

    parents: dict[bytes, list[ParentField]]


@verb("Repository.get_parent_map", effect=Effect.READ, errors=(NoSuchRepository,))
def repository_get_parent_map(context: Context, request: GetParentMapRequest) -> GetParentMapResult:
    """Say which parents revisions have, absent ones included."""
    transaction = context.transaction
    if not transaction.exists:
        raise NoSuchRepository(context.path)
    found: dict[bytes, list[ParentField]] = {}
    for revision in request.ids:
        if revision not in found and (fields := parent_fields(context, revision)) is not None:
            found[revision] = fields
    return GetParentMapResult(found)


def parent_fields(context: Context, revision: RevisionId) -> list[ParentField] | None:
    """The parents of a revision as they travel, counted as part of the result; None where it is not stored.

    Raises:
        LimitExceeded: the result is too long.
    """
    parents = context.transaction.parents(revision)
    if parents is None:
        return None
    context.gather(len(revision) + sum([len(parent.id) + PARENT_BYTES for parent in parents]))
    return [ParentField(parent.id, parent.absent) for parent in parents]
