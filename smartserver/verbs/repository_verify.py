"""`Repository.verify`: read everything and check it."""

from __future__ import annotations

from smartserver.errors import LimitExceeded, NoSuchRepository
from smartserver.verbs.declare import Arguments, Context, Effect, Result, verb


class VerifyRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Nothing."""


class VerifyResult(Result, frozen=True, array_like=True):
    """The things that were read (`size` in bytes), and a line for each damage found: none means all is well. `ghosts`:
    parents that are stored nowhere, which is no damage. `lost`: changes on disk that the repository does not have."""

    packs: int
    segments: int
    records: int
    size: int
    problems: list[str]
    ghosts: int = 0
    lost: int = 0


@verb("Repository.verify", effect=Effect.READ, long=True, errors=(LimitExceeded, NoSuchRepository), of_incomplete=True)
def repository_verify(context: Context, request: VerifyRequest) -> VerifyResult:
    """Read every pack, decode every record and check each against its key, parents and references."""
    report = context.verify()
    read = report.packs, report.segments, report.records, report.size
    return VerifyResult(*read, list(report.problems), report.ghosts, report.lost)
