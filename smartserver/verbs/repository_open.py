"""`Repository.open`: find the repository at a path, or the one that contains the path."""

from __future__ import annotations

from smartserver.errors import NoSuchRepository
from smartserver.verbs.declare import Arguments, Context, Effect, Result, verb


class OpenRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """No arguments: the path of the request is the only input."""


class OpenResult(Result, frozen=True, array_like=True):
    """`at`: the path of the repository. `rest`: the part of the request's path below it. With the flag BELOW, `branch`
    is the branch that `.` denotes, and `inner` the part of the path below the branch."""

    at: str
    rest: str
    vcs: str
    branch: bytes = b""
    inner: str = ""


@verb("Repository.open", effect=Effect.READ, finds_above=True, errors=(NoSuchRepository,))
def repository_open(context: Context, request: OpenRequest) -> OpenResult:
    """Find the longest prefix of the path that is a repository; its refs are part of the reply's state."""
    vcs = context.transaction.vcs
    rest = context.path.strip("/")[len(context.at) :].lstrip("/")
    return OpenResult(context.at, rest, vcs, context.branch, context.inner)
