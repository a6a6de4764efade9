"""`Repository.create`: create a repository."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from smartserver.errors import (
    AccessDenied,
    InvalidName,
    LimitExceeded,
    NestedRepository,
    RepositoryExists,
    Unsupported,
    WrongVcs,
)
from smartserver.records.model import Kind
from smartserver.store.model import INCOMPLETE
from smartserver.verbs.declare import Arguments, Context, Permission, Result, verb
from smartserver.verbs.fields import MAX_KINDS, Small, Word
from smartserver.verbs.repository_configure import MAX_SETTINGS, check_size


class KindField(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A kind of record: its name, how its content is checked, and whether it may have or be a delta base."""

    name: Word
    check: Word
    base: bool


class CopyPart(enum.StrEnum):
    """The part of a copy in a request. A copy is one request or several."""

    WHOLE = "whole"
    MORE = "more"
    """More requests follow. Until the last one, requests that are not part of the copy get the error
    `incomplete-repository` for a repository that this request creates. All revisions in the request are stored, even if
    all its refs are refused, because later refs may reach them."""
    LAST = "last"


class CreateRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`settings`: small values of a new repository, such as `HEAD`; an existing repository keeps its settings.
    `exclusive`: true if an existing repository is an error."""

    vcs: Word
    kinds: Annotated[list[KindField], msgspec.Meta(min_length=1, max_length=MAX_KINDS)]
    settings: Annotated[dict[Word, Small], msgspec.Meta(max_length=MAX_SETTINGS)] = {}
    exclusive: bool = False
    part: CopyPart = CopyPart.WHOLE


class CreateResult(Result, frozen=True, array_like=True):
    """True if this call created the repository."""

    created: bool


ERRORS = (AccessDenied, InvalidName, LimitExceeded, NestedRepository, RepositoryExists, Unsupported, WrongVcs)


def _is_part(request: CreateRequest) -> bool:
    return request.part is not CopyPart.WHOLE


@verb("Repository.create", errors=ERRORS, copies=_is_part)
def repository_create(context: Context, request: CreateRequest) -> CreateResult:
    """Create a repository, or accept an existing one of the same VCS.

    A repository that is created again after a deletion gets another incarnation. A repository that is created in one
    request with `Repository.insert_pack` and `Branch.*` is never visible while empty. An incomplete copy of several
    requests is not visible either.
    """
    transaction = context.transaction
    if not transaction.exists:
        context.require(Permission.CREATE)
        check_size(request.settings, {})
    kinds = [Kind(kind.name, kind.check, kind.base) for kind in request.kinds]
    more = request.part is CopyPart.MORE
    created = transaction.create(request.vcs, kinds, request.settings, incomplete=more)
    if _is_part(request) and transaction.is_incomplete:
        context.require(Permission.CREATE)
        if not more:
            transaction.set_setting(INCOMPLETE, None)
    if request.exclusive and not created:
        raise RepositoryExists(transaction.path)
    return CreateResult(created)
