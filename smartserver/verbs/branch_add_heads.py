"""`Branch.add_heads`: add tips to a ref that may have several."""

from __future__ import annotations

from typing import Annotated

import msgspec

from smartserver.records.model import Tip
from smartserver.verbs.declare import Arguments, Context, Result, verb
from smartserver.verbs.fields import MAX_IDS, Id, RefName, Small
from smartserver.verbs.rules import HEADS_ERRORS, Growth, add_heads


class NewHead(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A tip, attributes the store does not read, and whether it closes the branch."""

    id: Id
    attributes: Small = b""
    closed: bool = False


class AddHeadsRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`growth`: what is allowed where the ref would have more heads; `create`: whether an absent ref is made."""

    ref: RefName
    heads: Annotated[list[NewHead], msgspec.Meta(min_length=1, max_length=MAX_IDS)]
    growth: Growth = Growth.NONE
    create: bool = True


class AddHeadsResult(Result, frozen=True, array_like=True):
    """The tips the ref had before, none where this made it; and those that it has now and had not."""

    old: list[bytes]
    new: list[bytes]


@verb("Branch.add_heads", own_verdict=True, errors=HEADS_ERRORS)
def branch_add_heads(context: Context, request: AddHeadsRequest) -> AddHeadsResult:
    """Add tips to a ref: of the old and the new ones, it keeps those that no other descends from.

    Two clients that advance different heads at the same time both succeed. Where the heads would become more, `growth`
    says what is allowed: `none` (nothing; a new ref has one), `covered` (each present head is an ancestor of a new
    one), `any`. Where the repository has no ref yet, `growth` and `create` do not count. Tips that others replace, as
    entries of maps say, are left out: a server finds them by itself. Where no tip is left, the ref is removed.
    """
    heads = [Tip(head.id, head.attributes, head.closed) for head in request.heads]
    old, new = add_heads(context, request.ref, heads, request.growth, create=request.create)
    before = [tip.id for tip in old or ()]
    return AddHeadsResult(before, [tip.id for tip in new if tip.id not in before])
