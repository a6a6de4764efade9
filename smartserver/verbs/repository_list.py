"""`Repository.list`: list the repositories below a path."""

from __future__ import annotations

from typing import Annotated

import msgspec

from smartserver.errors import InvalidPath, LimitExceeded
from smartserver.verbs.declare import Arguments, Context, Effect, Result, verb

MAX_REPOSITORIES = 1000
"""The most repositories in one answer, because the log of each is read."""


class ListRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`after`: the last path of the previous answer, to continue a listing. `refs`: true to get the names of the refs,
    too."""

    after: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    most: Annotated[int, msgspec.Meta(ge=1, le=MAX_REPOSITORIES)] = MAX_REPOSITORIES
    refs: bool = False


class RepositoryField(Result, frozen=True, array_like=True):
    """`count`: the number of refs. `refs`: their names, if requested. `problem`: the reason if the repository cannot be
    read."""

    path: str
    vcs: str
    count: int
    refs: list[bytes] = []
    problem: str = ""


class ListResult(Result, frozen=True, array_like=True):
    """The repositories sorted by path: the content of a folder comes before the folder's siblings. `more`: true if the
    listing may continue after the last repository."""

    repositories: list[RepositoryField]
    more: bool = False


@verb("Repository.list", effect=Effect.READ, site_wide=True, errors=(InvalidPath, LimitExceeded))
def repository_list(context: Context, request: ListRequest) -> ListResult:
    """List the repositories at or below the request's path.

    If the path leads into a repository, only that repository is listed.
    """
    found = context.listing(request.after, request.most)
    repositories: list[RepositoryField] = []
    for each in found:
        refs = list(each.refs) if request.refs else []
        context.gather(len(each.path) + sum(map(len, refs)))
        repositories.append(RepositoryField(each.path, each.vcs, len(each.refs), refs, each.problem))
    return ListResult(repositories, len(found) == request.most)
