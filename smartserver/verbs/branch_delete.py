"""`Branch.delete`: remove a ref."""

from __future__ import annotations

from smartserver.errors import AccessDenied, HeadBranch, NoSuchRepository, StaleLease
from smartserver.verbs.declare import Arguments, Context, Permission, Result, verb
from smartserver.verbs.fields import Expected, RefName


class BranchDeleteRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`expected`: the tip that the ref must have. Nil allows any tip; empty means that the ref must be absent."""

    ref: RefName
    expected: Expected | None = None


class BranchDeleteResult(Result, frozen=True, array_like=True):
    """The previous tips of the ref; empty if the ref was absent."""

    old: list[bytes]


@verb("Branch.delete", own_verdict=True, errors=(AccessDenied, HeadBranch, NoSuchRepository, StaleLease))
def branch_delete(context: Context, request: BranchDeleteRequest) -> BranchDeleteResult:
    """Remove a ref and its entries in every map. If the ref is absent, the call succeeds unless `expected` is a tip.

    The branch that HEAD names cannot be removed.
    """
    transaction = context.transaction
    old = transaction.ref(request.ref)
    actual = old[0].id if old else b""
    if request.expected is not None and request.expected != actual:
        raise StaleLease(request.ref, request.expected, actual)
    if old is None:
        if request.expected is None:
            transaction.remember()
        return BranchDeleteResult([])
    if transaction.settings.get("HEAD") == request.ref:
        raise HeadBranch(request.ref)
    context.require(Permission.DELETE, request.ref)
    transaction.set_ref(request.ref, None)
    transaction.remove_entries(request.ref)
    return BranchDeleteResult([tip.id for tip in old])
