"""`Branch.add_heads`: add tips to a ref that may have several."""

from __future__ import annotations

from typing import Annotated

import msgspec

from smartserver.records.model import Tip
from smartserver.verbs.declare import Arguments, Context, Result, verb
from smartserver.verbs.fields import MAX_IDS, Id, RefName, Small
from smartserver.verbs.rules import HEADS_ERRORS, Growth, add_heads


class NewHead(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A tip, and attributes that the store does not read. `closed`: true if the tip closes the branch."""

    id: Id
    attributes: Small = b""
    closed: bool = False


class AddHeadsRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`growth`: the rule for a ref that would get more heads. `create`: true if an absent ref may be created."""

    ref: RefName
    heads: Annotated[list[NewHead], msgspec.Meta(min_length=1, max_length=MAX_IDS)]
    growth: Growth = Growth.NONE
    create: bool = True


class AddHeadsResult(Result, frozen=True, array_like=True):
    """`old`: the previous tips of the ref; empty if it was absent. `new`: the tips that the ref did not have before."""

    old: list[bytes]
    new: list[bytes]


@verb("Branch.add_heads", own_verdict=True, errors=HEADS_ERRORS)
def branch_add_heads(context: Context, request: AddHeadsRequest) -> AddHeadsResult:
    """Add tips to a ref. Of the old and the new tips, the ref keeps those from which no other descends.

    Two clients that advance different heads at the same time both succeed. `growth` limits additional heads: `none`
    allows none (a new ref has one), `covered` allows them if each present head is an ancestor of a new one, and `any`
    allows all. If the repository has no ref yet, `growth` and `create` are ignored. The server leaves out tips that
    others replace according to entries of maps. If no tip is left, the ref is removed.
    """
    heads = [Tip(head.id, head.attributes, head.closed) for head in request.heads]
    old, new = add_heads(context, request.ref, heads, request.growth, create=request.create)
    before = [tip.id for tip in old or ()]
    return AddHeadsResult(before, [tip.id for tip in new if tip.id not in before])
