"""`Repository.pack`: join packs now."""

from __future__ import annotations

from smartserver.errors import AccessDenied, NoSuchRepository, OutcomeUnknown
from smartserver.verbs.declare import Arguments, Context, Effect, Permission, Result, verb


class PackRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """No arguments."""


class PackResult(Result, frozen=True, array_like=True):
    """The number of packs before and after the call, and the bytes of the packs after the call."""

    before: int
    after: int
    size: int


@verb(
    "Repository.pack",
    effect=Effect.READ,
    long=True,
    errors=(AccessDenied, NoSuchRepository, OutcomeUnknown),
    of_incomplete=True,
)
def repository_pack(context: Context, request: PackRequest) -> PackResult:
    """Join all packs except those of more than 1 GiB. The server does so by itself when there are many packs.

    The call changes nothing that a client sees, so it counts as a read, but the user needs the permission to write.
    """
    context.require(Permission.WRITE)
    report = context.pack()
    return PackResult(report.before, report.after, report.size)
