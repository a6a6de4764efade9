"""`Repository.mend`: correct data that an earlier release stored unchecked."""

from __future__ import annotations

from smartserver.errors import AccessDenied, LimitExceeded, NoSuchRepository
from smartserver.verbs.declare import Arguments, Context, Permission, Result, verb

NAMED = 1024
"""The most lines of a result."""


class MendRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """No arguments."""


class MendResult(Result, frozen=True, array_like=True):
    """`count`: the number of corrections. `mended`: a line for each of the first corrections. `left`: True if another
    call is needed."""

    count: int
    mended: list[str]
    left: bool


@verb("Repository.mend", errors=(AccessDenied, LimitExceeded, NoSuchRepository))
def repository_mend(context: Context, request: MendRequest) -> MendResult:
    """Prove the attributes of all tips, correct the kinds of maps, and remove entries that no map can have.

    `Repository.verify` reports the same faults of tips and maps. The user needs the permission to administer.
    """
    context.require(Permission.ADMIN)
    mended, left = context.mend()
    return MendResult(len(mended), mended[:NAMED], left)
