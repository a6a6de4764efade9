"""`Repository.stats`: get the sizes and counts of a repository."""

from __future__ import annotations

import msgspec

from smartserver.errors import NoSuchRepository
from smartserver.verbs.declare import Arguments, Context, Effect, Result, verb


class StatsRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """No arguments."""


class StatsResult(Result, frozen=True, array_like=True):
    """`version`: the number of changes since the creation. `entries`: the entries of all maps. `size`: the bytes of
    packs and indexes. `largest`: the bytes of the largest pack.
    """

    format: str
    features: list[str]
    vcs: str
    version: int
    refs: int
    entries: int
    revisions: int
    records: int
    packs: int
    size: int
    largest: int


@verb("Repository.stats", effect=Effect.READ, errors=(NoSuchRepository,), of_incomplete=True)
def repository_stats(context: Context, request: StatsRequest) -> StatsResult:
    """Return the sizes and counts of a repository, without reading its packs."""
    return StatsResult(**msgspec.structs.asdict(context.transaction.stats()))
