"""`Branch.create`: make a ref."""

from __future__ import annotations

from smartserver.records.model import Tip
from smartserver.verbs.declare import Arguments, Context, Result, verb
from smartserver.verbs.fields import Id, RefName, Small
from smartserver.verbs.rules import CREATE_ERRORS, Create, move


class BranchCreateRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The name, where it points, and attributes the store does not read."""

    ref: RefName
    tip: Id
    attributes: Small = b""


class BranchCreateResult(Result, frozen=True, array_like=True):
    """True if this call made it; false where it was there with that tip."""

    created: bool


@verb("Branch.create", own_verdict=True, errors=CREATE_ERRORS)
def branch_create(context: Context, request: BranchCreateRequest) -> BranchCreateResult:
    """Make a ref with its content, tip and attributes at once: nothing empty or half-made is ever visible.

    One that is there already, with that tip and those attributes, is success; any other is refused.
    """
    old = move(context, request.ref, Tip(request.tip, request.attributes), create=Create.MUST)
    return BranchCreateResult(old is None)
