"""The files of a served repository, read through the store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from smartserver.store.repository import PackRepository
from transports.local import LocalTransport


@dataclass(frozen=True, slots=True)
class Stored:
    """A repository: the packs that it names, their bytes with indexes, the longest chain of bases, and its refs."""

    packs: int
    size: int
    deepest: int
    revisions: int
    refs: dict[str, str]


def opened(served: Path, name: str) -> PackRepository:
    """Open a repository directly, without its server."""
    return PackRepository(LocalTransport(served), name)


def look(served: Path, name: str) -> Stored:
    snapshot = opened(served, name).snapshot()
    packs = snapshot.state.packs
    return Stored(
        len(packs),
        sum(pack.length + pack.index_length for pack in packs),
        max((row.depth for pack in snapshot.packs for row in pack.index.rows()), default=0),
        sum(pack.segments for pack in packs),
        {name.decode(): value[0].id.hex() for name, value in snapshot.state.refs().items()},
    )


def lacking(served: Path, name: str, commits: list[str]) -> list[str]:
    """Return the members of `commits` that a repository lacks."""
    snapshot = opened(served, name).snapshot()
    return [commit for commit in commits if snapshot.ordinal(bytes.fromhex(commit)) is None]


def damages(served: Path, name: str) -> tuple[str, ...]:
    return opened(served, name).verify().problems
