"""`Repository.verify`: read and check all stored data."""

from __future__ import annotations

from smartserver.errors import LimitExceeded, NoSuchRepository
from smartserver.verbs.declare import Arguments, Context, Effect, Result, verb


class VerifyRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """No arguments."""


class VerifyResult(Result, frozen=True, array_like=True):
    """The numbers of packs, segments, records and bytes (`size`) that were read. `problems`: a line for each problem.
    `ghosts`: the number of parents that are not stored, which is no damage. `lost`: the number of changes on disk that
    the repository does not have."""

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
