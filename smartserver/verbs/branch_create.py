"""`Branch.create`: create a ref."""

from __future__ import annotations

from smartserver.records.model import Tip
from smartserver.verbs.declare import Arguments, Context, Result, verb
from smartserver.verbs.fields import Id, RefName, Small
from smartserver.verbs.rules import CREATE_ERRORS, Create, move


class BranchCreateRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The name and the tip of the ref, and attributes that the store does not read."""

    ref: RefName
    tip: Id
    attributes: Small = b""


class BranchCreateResult(Result, frozen=True, array_like=True):
    """True if this call created the ref; false if it existed with that tip."""

    created: bool


@verb("Branch.create", own_verdict=True, errors=CREATE_ERRORS)
def branch_create(context: Context, request: BranchCreateRequest) -> BranchCreateResult:
    """Create a ref with its content, tip and attributes at once, so that nothing incomplete is ever visible.

    If the ref exists with this tip and these attributes, the call succeeds; with any other value it is refused.
    """
    old = move(context, request.ref, Tip(request.tip, request.attributes), create=Create.MUST)
    return BranchCreateResult(old is None)
