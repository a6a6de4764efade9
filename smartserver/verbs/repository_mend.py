"""`Repository.mend`: put right what an earlier release stored because a client claimed it."""

from __future__ import annotations

from smartserver.errors import AccessDenied, LimitExceeded, NoSuchRepository
from smartserver.verbs.declare import Arguments, Context, Permission, Result, verb

NAMED = 1024
"""Lines of a result."""


class MendRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Nothing."""


class MendResult(Result, frozen=True, array_like=True):
    """The number of things that were put right, a line for each of the first ones, and whether more is left for another
    call."""

    count: int
    mended: list[str]
    left: bool


@verb("Repository.mend", errors=(AccessDenied, LimitExceeded, NoSuchRepository))
def repository_mend(context: Context, request: MendRequest) -> MendResult:
    """Prove the attributes of all tips, give maps their kinds, and remove what no map can hold.

    It changes what `Repository.verify` names of that, and needs the permission to administer.
    """
    context.require(Permission.ADMIN)
    mended, left = context.mend()
    return MendResult(len(mended), mended[:NAMED], left)
