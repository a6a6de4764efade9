"""`Repository.stats`: what a repository consists of."""

from __future__ import annotations

import msgspec

from smartserver.errors import NoSuchRepository
from smartserver.verbs.declare import Arguments, Context, Effect, Result, verb


class StatsRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Nothing."""


class StatsResult(Result, frozen=True, array_like=True):
    """`version`: changes since it was made. `entries`: of all maps. `size`: bytes of packs and indexes; `largest`: of
    the largest pack.
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
    """Say how large a repository is and what it is made of, without reading its packs."""
    return StatsResult(**msgspec.structs.asdict(context.transaction.stats()))
