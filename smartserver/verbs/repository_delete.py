"""`Repository.delete`: delete a repository."""

from __future__ import annotations

from smartserver.errors import AccessDenied, NoSuchRepository
from smartserver.verbs.declare import Arguments, Context, Permission, Result, verb


class DeleteRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Nothing."""


class DeleteResult(Result, frozen=True, array_like=True):
    """Nothing."""


@verb("Repository.delete", alone=True, errors=(AccessDenied, NoSuchRepository), of_incomplete=True)
def repository_delete(context: Context, request: DeleteRequest) -> DeleteResult:
    """Delete a repository: from now on there is none. Its packs are deleted at a server's next start, a day later.

    Another may be made in its place. No other call may be in the request.
    """
    context.require(Permission.DELETE)
    context.transaction.delete()
    return DeleteResult()
