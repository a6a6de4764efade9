"""Lists the repositories on a server, with as many calls as that takes. The number of calls is bounded, whatever the
server answers."""

from __future__ import annotations

from collections.abc import Iterator

from smartserver.client.call import Client
from smartserver.verbs.repository_list import MAX_REPOSITORIES, ListRequest, RepositoryField, repository_list
from smartserver.wire.errors import RemoteProtocolError

AT_ONCE = MAX_REPOSITORIES
"""The number of repositories requested in one call."""

MOST_ANSWERS = 1000
"""The most answers that are read: a million repositories. The server of this release looks into 100,000 folders."""


def repositories(client: Client, path: str, *, refs: bool) -> Iterator[RepositoryField]:
    """Yield the repositories at and below a path, in the order of their paths. With `refs`, each repository has the
    names of its refs."""
    last = ""
    for _ in range(MOST_ANSWERS):
        answer = client.call(repository_list, ListRequest(last, AT_ONCE, refs), path)
        yield from answer.repositories
        if not answer.more:
            return
        before, last = last, answer.repositories[-1].path if answer.repositories else ""
        if last.split("/") <= before.split("/"):
            raise RemoteProtocolError(f"expected repositories after {before!r}, which the server announced, got none")
    raise RemoteProtocolError(
        f"the server announces more repositories after {MOST_ANSWERS} answers: list one folder at a time"
    )
