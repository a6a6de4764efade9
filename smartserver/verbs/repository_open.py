"""`Repository.open`: find the repository a path leads to."""

from __future__ import annotations

from smartserver.errors import NoSuchRepository
from smartserver.verbs.declare import Arguments, Context, Effect, Result, verb


class OpenRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Nothing: the request's path says it all."""


class OpenResult(Result, frozen=True, array_like=True):
    """The path of the repository, and the part of the path below it; with the flag BELOW also the branch that `.` is,
    and what of the path leads into it."""

    at: str
    rest: str
    vcs: str
    branch: bytes = b""
    inner: str = ""


@verb("Repository.open", effect=Effect.READ, finds_above=True, errors=(NoSuchRepository,))
def repository_open(context: Context, request: OpenRequest) -> OpenResult:
    """Find the longest prefix of the path that is a repository; its refs come with the reply's state."""
    vcs = context.transaction.vcs
    rest = context.path.strip("/")[len(context.at) :].lstrip("/")
    return OpenResult(context.at, rest, vcs, context.branch, context.inner)
