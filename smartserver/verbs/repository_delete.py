"""`Repository.delete`: delete a repository."""

from __future__ import annotations

from smartserver.errors import AccessDenied, NoSuchRepository
from smartserver.verbs.declare import Arguments, Context, Permission, Result, verb


class DeleteRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """No arguments."""


class DeleteResult(Result, frozen=True, array_like=True):
    """An empty result."""


@verb("Repository.delete", alone=True, errors=(AccessDenied, NoSuchRepository), of_incomplete=True)
def repository_delete(context: Context, request: DeleteRequest) -> DeleteResult:
    """Delete a repository at once. The first server that starts a day later or more deletes its packs.

    Another repository may be created in its place. No other call may be in the request.
    """
    context.require(Permission.DELETE)
    context.transaction.delete()
    return DeleteResult()
