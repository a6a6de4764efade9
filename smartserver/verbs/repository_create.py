"""`Repository.create`: make a repository."""

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
    """Which of the requests of a copy this is. One request is a copy by itself, or one of several."""

    WHOLE = "whole"
    MORE = "more"
    """More follow: a repository that this one makes is `incomplete-repository` to all others until the last came. All
    revisions that this one brings are stored, even if all its refs are refused: later refs may reach them."""
    LAST = "last"


class CreateRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`settings` are small values kept with the repository, such as `HEAD`; the first creation decides them. With
    `exclusive` a repository that exists is an error."""

    vcs: Word
    kinds: Annotated[list[KindField], msgspec.Meta(min_length=1, max_length=MAX_KINDS)]
    settings: Annotated[dict[Word, Small], msgspec.Meta(max_length=MAX_SETTINGS)] = {}
    exclusive: bool = False
    part: CopyPart = CopyPart.WHOLE


class CreateResult(Result, frozen=True, array_like=True):
    """True if this call made it."""

    created: bool


ERRORS = (AccessDenied, InvalidName, LimitExceeded, NestedRepository, RepositoryExists, Unsupported, WrongVcs)


def _is_part(request: CreateRequest) -> bool:
    return request.part is not CopyPart.WHOLE


@verb("Repository.create", errors=ERRORS, copies=_is_part)
def repository_create(context: Context, request: CreateRequest) -> CreateResult:
    """Make a repository, or accept one of the same VCS that is there.

    Creating a deleted repository again gives it another incarnation. In one request with `Repository.insert_pack` and
    `Branch.*` nobody ever sees it empty. Nor does anybody see part of a copy that takes several requests.
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
